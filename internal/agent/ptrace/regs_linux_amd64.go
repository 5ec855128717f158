package ptrace

import "golang.org/x/sys/unix"

// programCounter returns where a thread that is stopped by ptrace goes on.
func programCounter(tid int) (uint64, error) {
	var regs unix.PtraceRegs
	err := unix.PtraceGetRegs(tid, &regs)
	return regs.Rip, err
}

// stackPointer returns a thread's stack pointer.
func stackPointer(r *unix.PtraceRegs) uint64 { return r.Rsp }

// setCall makes the registers those of a thread that was just called with two arguments and has its return address
// right below the second, which points to the stack.
func setCall(r *unix.PtraceRegs, function, first, second uint64) {
	r.Rip, r.Rdi, r.Rsi, r.Rsp, r.Rax = function, first, second, second-8, 0
	r.Orig_rax = ^uint64(0) // it is in no system call that would be begun anew
}
