package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Moment is an end of validity in the JSON Lines form: a number of nanoseconds, "endless" or "unknown".
type Moment int64

// The words for moments that are not times.
const (
	wordEndless = "endless"
	wordUnknown = "unknown"
)

// MarshalJSON writes a number, or the word for a moment that is no time.
func (m Moment) MarshalJSON() ([]byte, error) { return appendMoment(nil, int64(m)), nil }

// UnmarshalJSON reads a number or a word.
func (m *Moment) UnmarshalJSON(b []byte) error {
	switch s := string(b); s {
	case `"` + wordEndless + `"`:
		*m = Moment(ValidEndless)
	case `"` + wordUnknown + `"`:
		*m = Moment(ValidUnknown)
	default:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("valid is %s: want nanoseconds, %q or %q", s, wordEndless, wordUnknown)
		}
		*m = Moment(n)
	}
	return nil
}

func appendMoment(b []byte, v int64) []byte {
	switch v {
	case ValidEndless:
		return append(b, `"`+wordEndless+`"`...)
	case ValidUnknown:
		return append(b, `"`+wordUnknown+`"`...)
	}
	return strconv.AppendInt(b, v, 10)
}

// Line is one event in the JSON Lines form: names stand where a record has numbers, and what is zero is left out.
type Line struct {
	Time    int64  `json:"time"`              // ns of the run's clock
	Process string `json:"process,omitempty"` // name of the node; not on a stream, where it is known
	Seq     uint32 `json:"seq"`
	Op      uint32 `json:"op"`
	User    string `json:"user"` // "client-1/0"
	Kind    string `json:"kind"`
	Phase   string `json:"phase"`
	Lock    string `json:"lock,omitempty"` // name of the lock, or "#7" where the table has no such number
	Grant   uint32 `json:"grant,omitempty"`
	Mode    string `json:"mode,omitempty"` // "shared"; exclusive is left out
	Code    string `json:"code,omitempty"` // error class
	Token   uint64 `json:"token,omitempty"`
	Valid   Moment `json:"valid,omitempty"`
	Value   int64  `json:"value,omitempty"`
	Tries   uint32 `json:"tries,omitempty"`
}

// AppendJSON appends e in the JSON Lines form, without a newline, to b. Locks is the file's table of lock names; an
// empty process is left out.
func AppendJSON(b []byte, e *Event, process string, locks []string) []byte {
	b = strconv.AppendInt(append(b, `{"time":`...), e.Time, 10)
	if process != "" {
		b = appendString(append(b, `,"process":`...), process)
	}
	b = appendUint(b, `,"seq":`, uint64(e.Seq))
	b = appendUint(b, `,"op":`, uint64(e.Op))
	b = appendUint(b, `,"user":"client-`, uint64(e.User.Client()+1))
	b = appendUint(b, `/`, uint64(e.User.Index()))
	b = append(append(b, `","kind":"`...), e.Kind.String()...)
	b = append(append(b, `","phase":"`...), e.Phase.String()...)
	b = append(b, '"')
	if e.Kind.hasLock() || e.Lock != 0 {
		b = appendString(append(b, `,"lock":`...), lockName(e.Lock, locks))
	}
	if e.Grant != 0 {
		b = appendUint(b, `,"grant":`, uint64(e.Grant))
	}
	if e.Mode != 0 {
		b = append(b, `,"mode":"shared"`...)
	}
	if e.Code != 0 {
		b = append(append(append(b, `,"code":"`...), CodeName(e.Code)...), '"')
	}
	if e.Token != 0 {
		b = appendUint(b, `,"token":`, e.Token)
	}
	if e.Valid != 0 {
		b = appendMoment(append(b, `,"valid":`...), e.Valid)
	}
	if e.Value != 0 {
		b = strconv.AppendInt(append(b, `,"value":`...), e.Value, 10)
	}
	if e.Tries != 0 {
		b = appendUint(b, `,"tries":`, uint64(e.Tries))
	}
	return append(b, '}')
}

func appendUint(b []byte, key string, v uint64) []byte {
	return strconv.AppendUint(append(b, key...), v, 10)
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil { // cannot be: every string has a JSON form
		return append(b, `""`...)
	}
	return append(b, q...)
}

// hasLock tells whether events of this kind are about a lock.
func (k Kind) hasLock() bool {
	switch k {
	case Stall, Dropped, Dead, Clean, Close:
		return false
	}
	return true
}

func lockName(i uint16, locks []string) string {
	if int(i) < len(locks) {
		return locks[i]
	}
	return "#" + strconv.Itoa(int(i))
}

// Event turns a line back into an event; locks is the table that its lock's name is looked up in.
func (l Line) Event(locks []string) (Event, error) {
	e := Event{
		Time: l.Time, Seq: l.Seq, Op: l.Op, Grant: l.Grant, Token: l.Token, Valid: int64(l.Valid), Value: l.Value,
		Tries: l.Tries,
	}
	kind := slices.Index(kindNames[:], l.Kind)
	if kind <= 0 {
		return e, fmt.Errorf("event has unknown kind %q", l.Kind)
	}
	phase := slices.Index(phaseNames[:], l.Phase)
	if phase < 0 {
		return e, fmt.Errorf("event has unknown phase %q", l.Phase)
	}
	code := slices.Index(codeNames[:], l.Code)
	if code < 0 {
		return e, fmt.Errorf("event has unknown code %q", l.Code)
	}
	e.Kind, e.Phase, e.Code = Kind(kind), Phase(phase), uint8(code)
	switch l.Mode {
	case "", "exclusive":
	case "shared":
		e.Mode = 1
	default:
		return e, fmt.Errorf("event has unknown mode %q: want exclusive or shared", l.Mode)
	}
	var err error
	if e.User, err = ParseUser(l.User); err != nil {
		return e, err
	}
	e.Lock, err = parseLock(l.Lock, locks)
	return e, err
}

// ParseUser reads a user's name as User.String writes it.
func ParseUser(s string) (User, error) {
	rest, ok := strings.CutPrefix(s, "client-")
	client, number, found := strings.Cut(rest, "/")
	c, err := strconv.ParseUint(client, 10, 32)
	n, err2 := strconv.ParseUint(number, 10, 16)
	if !ok || !found || err != nil || err2 != nil || c < 1 || c > 1<<16 {
		return 0, fmt.Errorf("user is %q: want a name such as client-1/0", s)
	}
	return MakeUser(int(c-1), int(n)), nil
}

func parseLock(s string, locks []string) (uint16, error) {
	if s == "" {
		return 0, nil
	}
	if i := slices.Index(locks, s); i >= 0 {
		return uint16(i), nil
	}
	if rest, ok := strings.CutPrefix(s, "#"); ok {
		if n, err := strconv.ParseUint(rest, 10, 16); err == nil {
			return uint16(n), nil
		}
	}
	return 0, fmt.Errorf("event names unknown lock %q", s)
}

// WriteJSONL writes all that m has yet to read, in the order of time, one line for each event.
func WriteJSONL(w io.Writer, m *Merge) error {
	return m.Write(w, func(b []byte, e *Event, process string) []byte {
		return append(AppendJSON(b, e, process, m.Locks()), '\n')
	})
}

// Write writes all that m has yet to read, in the order of time, as line appends each event of a process.
func (m *Merge) Write(w io.Writer, line func(b []byte, e *Event, process string) []byte) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var e Event
	var text []byte
	for {
		process, err := m.Next(&e)
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		text = line(text[:0], &e, process.Process)
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
}
