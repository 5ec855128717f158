package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// RecordSize is the size of one encoded event in bytes.
const RecordSize = 64

// castagnoli is the polynomial with hardware support.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blank is a record of nothing.
var blank [RecordSize]byte

// ErrCorrupt says that a record or a file is damaged; the error that wraps it says where.
var ErrCorrupt = errors.New("history is damaged")

// AppendRecord appends the 64 bytes of e to b. The layout, little endian: time 8, seq 4, op 4, user 4, grant 4, lock 2,
// kind 1, phase 1, mode 1, code 1, two zero bytes, token 8, valid 8, value 8, tries 4, crc32c of the 60 bytes
// before it 4.
func AppendRecord(b []byte, e *Event) []byte {
	b = append(b, blank[:]...)
	r := b[len(b)-RecordSize:] // in place: a local array would be moved to the heap
	le := binary.LittleEndian
	le.PutUint64(r[0:], uint64(e.Time))
	le.PutUint32(r[8:], e.Seq)
	le.PutUint32(r[12:], e.Op)
	le.PutUint32(r[16:], uint32(e.User))
	le.PutUint32(r[20:], e.Grant)
	le.PutUint16(r[24:], e.Lock)
	r[26], r[27], r[28], r[29] = byte(e.Kind), byte(e.Phase), e.Mode, e.Code
	le.PutUint64(r[32:], e.Token)
	le.PutUint64(r[40:], uint64(e.Valid))
	le.PutUint64(r[48:], uint64(e.Value))
	le.PutUint32(r[56:], e.Tries)
	le.PutUint32(r[60:], crc32.Checksum(r[:60], castagnoli))
	return b
}

// DecodeRecord reads one event from the first 64 bytes of b.
func DecodeRecord(b []byte, e *Event) error {
	if len(b) < RecordSize {
		return fmt.Errorf("%w: %d bytes where a record has %d", ErrCorrupt, len(b), RecordSize)
	}
	b = b[:RecordSize]
	le := binary.LittleEndian
	if sum := crc32.Checksum(b[:60], castagnoli); sum != le.Uint32(b[60:]) {
		return fmt.Errorf("%w: checksum is %08x, should be %08x", ErrCorrupt, le.Uint32(b[60:]), sum)
	}
	e.Time = int64(le.Uint64(b[0:]))
	e.Seq = le.Uint32(b[8:])
	e.Op = le.Uint32(b[12:])
	e.User = User(le.Uint32(b[16:]))
	e.Grant = le.Uint32(b[20:])
	e.Lock = le.Uint16(b[24:])
	e.Kind, e.Phase, e.Mode, e.Code = Kind(b[26]), Phase(b[27]), b[28], b[29]
	e.Token = le.Uint64(b[32:])
	e.Valid = int64(le.Uint64(b[40:]))
	e.Value = int64(le.Uint64(b[48:]))
	e.Tries = le.Uint32(b[56:])
	if e.Kind >= kindEnd || e.Phase >= phaseEnd || e.Code >= codeEnd || e.Kind == KindNone {
		return fmt.Errorf("%w: unknown kind %d, phase %d or code %d", ErrCorrupt, b[26], b[27], b[29])
	}
	return nil
}
