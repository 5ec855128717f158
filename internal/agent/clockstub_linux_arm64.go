package agent

import (
	"encoding/binary"
	"runtime"

	"golang.org/x/sys/unix"
)

// stubTried tells whether the stub of this architecture was run on a real machine.
const stubTried = false

// stubCode is what clockstub_linux_amd64.go explains, in instructions of four bytes. The shift takes nanoseconds since 1970 in
// x2 and 10^9 in x4, and gives seconds in x3 and nanoseconds in x5.
var stubCode = instructions(
	// shift:
	0x10000005, // adr x5, .
	0xa97e9ca6, // ldp x6, x7, [x5, #-24]: epoch, rate
	0xf85f80aa, // ldur x10, [x5, #-8]: offset
	0xcb060046, // sub x6, x2, x6
	0x9b077ccb, // mul x11, x6, x7
	0x9b477ccc, // smulh x12, x6, x7
	0x93cb818b, // extr x11, x12, x11, #32
	0x8b0b0042, // add x2, x2, x11
	0x8b0a0042, // add x2, x2, x10
	0x9ac40843, // udiv x3, x2, x4
	0x9b048865, // msub x5, x3, x4, x2
	0xd65f03c0, // ret
	// clock_gettime:
	0x93407c09, // sxtw x9, w0
	0xd2800e28, // mov x8, #113
	0xd4000001, // svc #0
	0xb50001a0, // cbnz x0, ret
	0x34000069, // cbz w9, +3
	0x7100153f, // cmp w9, #5
	0x54000141, // b.ne ret
	0xa9400c22, // ldp x2, x3, [x1]
	0xd2994004, // mov x4, #0xca00
	0xf2a77344, // movk x4, #0x3b9a, lsl #16
	0x9b040c42, // madd x2, x2, x4, x3
	0xaa1e03ed, // mov x13, x30
	0x97ffffe8, // bl shift
	0xaa0d03fe, // mov x30, x13
	0xa9001423, // stp x3, x5, [x1]
	0xaa1f03e0, // mov x0, xzr
	0xd65f03c0, // ret
	// gettimeofday:
	0xaa0003e9, // mov x9, x0
	0xd2801528, // mov x8, #169
	0xd4000001, // svc #0
	0xb50001e0, // cbnz x0, ret
	0xb40001c9, // cbz x9, ret
	0xa9400d22, // ldp x2, x3, [x9]
	0xd2994004, // mov x4, #0xca00
	0xf2a77344, // movk x4, #0x3b9a, lsl #16
	0xd2807d06, // mov x6, #1000
	0x9b067c63, // mul x3, x3, x6
	0x9b040c42, // madd x2, x2, x4, x3
	0xaa1e03ed, // mov x13, x30
	0x97ffffd7, // bl shift
	0xaa0d03fe, // mov x30, x13
	0xd2807d06, // mov x6, #1000
	0x9ac608a5, // udiv x5, x5, x6
	0xa9001523, // stp x3, x5, [x9]
	0xaa1f03e0, // mov x0, xzr
	0xd65f03c0, // ret
)

func instructions(words ...uint32) []byte {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// Where things are, counted from the header.
const (
	stubShift   = 40      // reads the header from here
	stubShifted = 40 + 12 // to here
)

// patched lists the functions of the vDSO that are made to jump into the stub. There is no time here.
var patched = []entry{{"__kernel_clock_gettime", 40 + 12*4}, {"__kernel_gettimeofday", 40 + 29*4}}

// landing is an instruction that must stay at the beginning of a function: bti c.
var landing = []byte{0x5f, 0x24, 0x03, 0xd5}

// jump encodes a jump from one address to another, both in the vDSO.
func jump(from, to uint64) []byte {
	return instructions(0x14000000 | uint32(int64(to-from)>>2)&0x03ffffff) // b
}

// programCounter returns where a thread that is stopped by ptrace goes on.
func programCounter(tid int) (uint64, error) {
	var regs unix.PtraceRegsArm64
	err := unix.PtraceGetRegSetArm64(tid, ntPRStatus, &regs)
	runtime.KeepAlive(&regs)
	return regs.Pc, err
}

// ntPRStatus is the register set with the general registers.
const ntPRStatus = 1
