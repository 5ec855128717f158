package ptrace

import "golang.org/x/sys/unix"

// programCounter returns the program counter of a thread stopped by ptrace.
func programCounter(tid int) (uint64, error) {
	var regs unix.PtraceRegs
	err := unix.PtraceGetRegs(tid, &regs)
	return regs.Rip, err
}

// stackPointer returns a thread's stack pointer.
func stackPointer(r *unix.PtraceRegs) uint64 { return r.Rsp }

// setCall sets the registers as if the function was just called with two arguments. The second points to the stack,
// with the return address right below it.
func setCall(r *unix.PtraceRegs, function, first, second uint64) {
	r.Rip, r.Rdi, r.Rsi, r.Rsp, r.Rax = function, first, second, second-8, 0
	r.Orig_rax = ^uint64(0) // no interrupted system call to restart
}
