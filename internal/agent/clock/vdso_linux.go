package clock

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
)

// entry is a function of the vDSO and its counterpart in the stub.
type entry struct {
	name string
	code int // offset of the counterpart, from the stub's header
}

// stubHeader precedes the code of the stub. It is all that changes while a patch is active.
type stubHeader struct {
	Magic  [4]byte
	By     proc.Program // the agent that wrote it
	Mono   int64        // ns by which the monotonic clock is ahead: 0, or less than that
	Epoch  int64        // ns since 1970 from which Rate counts
	Rate   int64        // gain per second, in 2^-32 s
	Offset int64        // ns
}

var stubMagic = [4]byte([]byte("lqck"))

// vdso is an image of a process's vDSO: the small library that the kernel maps into every process, with which programs
// read the clock without a system call. A process gets its own copy once it is written to.
type vdso struct {
	base  uint64
	image []byte
}

// readVDSO reads the vDSO out of a process's memory.
func readVDSO(pid int) (vdso, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return vdso{}, proc.Absent(err)
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var from, to uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return vdso{}, fmt.Errorf("the vDSO in the memory map of pid %d: %w", pid, err)
		}
		v := vdso{base: from, image: make([]byte, to-from)}
		return v, v.access(pid, os.O_RDONLY, func(m *os.File) error {
			_, err := m.ReadAt(v.image, int64(from))
			return err
		})
	}
	return vdso{}, fmt.Errorf("pid %d has no vDSO: its clock is read by system calls, which cannot be moved", pid)
}

func (v vdso) access(pid, how int, do func(*os.File) error) error {
	m, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), how, 0)
	if err != nil {
		return proc.Absent(err)
	}
	defer func() { _ = m.Close() }()
	if err := do(m); err != nil {
		return fmt.Errorf("the vDSO of pid %d at %#x: %w", pid, v.base, err)
	}
	return nil
}

// hook is a function of the vDSO at an offset, with the bytes that lead into the stub.
type hook struct {
	at   int
	jump []byte
}

// original is the vDSO as the kernel made it, with the places that a patch changes.
type original struct {
	image []byte
	stub  int // offset of the stub in it
	hooks []hook
}

// ownVDSO reads our own vDSO, which no clock fault touches. The kernel gives the same image to every process of the
// same architecture. So a target's must look like it, and an undo writes it back.
var ownVDSO = sync.OnceValues(func() (original, error) {
	v, err := readVDSO(os.Getpid())
	if err != nil {
		return original{}, err
	}
	return dissect(v.image)
})

// dissect finds the functions to be patched and room for the stub in an image.
func dissect(image []byte) (original, error) {
	if runtime.GOARCH != "amd64" {
		return original{}, fmt.Errorf("the code that shifts a clock exists only for amd64, but this is %s",
			runtime.GOARCH)
	}
	p := original{image: image}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return p, fmt.Errorf("the vDSO is not an ELF image: %w", err)
	}
	// The stub goes behind the content of the image, in its last page: threads inside a vDSO function during the patch
	// finish it undisturbed.
	p.stub = (len(image) - binary.Size(stubHeader{}) - len(stubCode)) &^ 15
	if p.stub < 0 || slices.ContainsFunc(image[p.stub:], func(b byte) bool { return b != 0 }) ||
		loaded(f) > uint64(p.stub) {
		return p, fmt.Errorf("the vDSO has no room of %d bytes behind its end", binary.Size(stubHeader{})+len(stubCode))
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return p, fmt.Errorf("symbols of the vDSO: %w", err)
	}
	for _, e := range patched {
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == e.name })
		if i < 0 {
			return p, fmt.Errorf("the vDSO has no %s", e.name)
		}
		at := int(symbols[i].Value)
		need := len(jump(0, 0))
		if at+int(symbols[i].Size) <= len(image) && bytes.HasPrefix(image[at:], endbr) {
			at += len(endbr)
			need += len(endbr)
		}
		if int(symbols[i].Size) < need || at+need > p.stub {
			return p, fmt.Errorf("%s of the vDSO has %d bytes, too few for a jump", e.name, symbols[i].Size)
		}
		p.hooks = append(p.hooks, hook{at: at, jump: jump(uint64(at), uint64(p.stub+e.code))})
	}
	return p, nil
}

// loaded returns the end of the image's content, according to its headers.
func loaded(f *elf.File) uint64 {
	var end uint64
	for _, s := range f.Progs {
		end = max(end, s.Vaddr+s.Memsz)
	}
	return end
}

// patch returns the image with a header's shift active. A zero header leaves the stub in place but removes the jumps: a
// thread may be inside.
func (p original) patch(h stubHeader) []byte {
	h.Magic = stubMagic
	out := slices.Clone(p.image)
	var stub bytes.Buffer
	_ = binary.Write(&stub, binary.LittleEndian, h) // a buffer takes everything
	copy(out[p.stub:], append(stub.Bytes(), stubCode...))
	if h.stands() {
		for _, k := range p.hooks {
			copy(out[k.at:], k.jump)
		}
	}
	return out
}

func (h stubHeader) stands() bool { return h.Rate != 0 || h.Offset != 0 || h.Mono != 0 }

// header returns the shift in an image. It returns an error if the rest is not as the kernel made it: another program
// changed it or it is from another kernel, so it must not be written to.
func (p original) header(image []byte) (h stubHeader, err error) {
	if bytes.Equal(image, p.image) {
		return stubHeader{}, nil
	}
	err = errors.New("it does not match: its bytes differ from those of this kernel")
	if len(image) != len(p.image) {
		return h, err
	}
	_ = binary.Read(bytes.NewReader(image[p.stub:]), binary.LittleEndian, &h) // there is room for one
	if h.Magic != stubMagic || !bytes.Equal(image, p.patch(h)) {
		return stubHeader{}, err
	}
	return h, nil
}

// shiftProcess gives one process the shift of the header; changed reports whether it had another before.
func shiftProcess(ctx context.Context, holder ptrace.Holder, pid int, h stubHeader) (changed bool, err error) {
	own, err := ownVDSO()
	if err != nil {
		return false, err
	}
	err = holder.HoldFree(ctx, pid, func(held *ptrace.Held) error {
		changed, err = own.write(held, h)
		return err
	})
	return changed, err
}

// write sets a held process's vDSO to the header's shift and reads it back.
func (p original) write(held *ptrace.Held, h stubHeader) (changed bool, err error) {
	v, err := readVDSO(held.PID)
	if err != nil {
		return false, err
	}
	old, err := p.header(v.image)
	if err != nil {
		return false, fmt.Errorf("the vDSO of pid %d: %w", held.PID, err)
	}
	h.Magic = old.Magic
	if h.stands() {
		h.By = proc.ThisProgram()
	}
	if old == h || !old.stands() && !h.stands() {
		return false, nil
	}
	if err := p.free(held, v.base); err != nil {
		return false, err
	}
	want := p.patch(h)
	err = v.access(held.PID, os.O_RDWR, func(m *os.File) error {
		for _, part := range p.parts(h.stands()) {
			if _, err := m.WriteAt(want[part[0]:part[1]], int64(v.base)+int64(part[0])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return true, err
	}
	after, err := readVDSO(held.PID)
	if err == nil && !bytes.Equal(after.image, want) {
		err = fmt.Errorf("the vDSO of pid %d lacks the written bytes", held.PID)
	}
	return true, err
}

// parts returns the ranges that a patch writes, in order: the stub before the jumps if in, else after them.
func (p original) parts(in bool) [][2]int {
	parts := [][2]int{{p.stub, p.stub + binary.Size(stubHeader{}) + len(stubCode)}}
	for _, k := range p.hooks {
		parts = append(parts, [2]int{k.at, k.at + len(k.jump)})
	}
	if !in {
		slices.Reverse(parts)
	}
	return parts
}

// free checks that no thread is executing the bytes to be written, or the few instructions that read the header.
func (p original) free(held *ptrace.Held, base uint64) error {
	places := [][2]int{{p.stub + stubShift, p.stub + stubShifted}}
	for _, k := range p.hooks {
		places = append(places, [2]int{k.at, k.at + len(k.jump)})
	}
	for _, place := range places {
		n, err := held.Inside(base+uint64(place[0]), base+uint64(place[1]))
		if err != nil {
			return err
		}
		if n > 0 {
			return ptrace.BusyError("a thread is reading the clock")
		}
	}
	return nil
}
