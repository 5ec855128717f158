package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Main runs the store's process; its objects are files in dir.
func Main(ctx context.Context, o resource.Options, dir string) error {
	return resource.Drive(ctx, o, name, func(ctx context.Context) (resource.Body, error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
		return &server{dir: dir, listener: l}, err
	})
}

// server is the store, with the methods for its process and for users.
type server struct {
	dir      string
	listener net.Listener
	http     *http.Server // nil before the start
	record   func(*history.Event)
	names    map[string]int
	objects  []object

	serving sync.RWMutex // held for reading while a request is carried out
	over    bool
}

// object is the file of one lock. Condition, write and log entry are one step under its mutex. So the order of the
// log is the order in which requests were carried out.
type object struct {
	mu     sync.Mutex
	number uint16 // of the lock
	path   string
}

// Watched returns true: users wait for this process.
func (s *server) Watched() bool { return true }

func (s *server) Start(_ context.Context, start *wire.Start, rec *wire.Recorder) (string, error) {
	s.record = func(e *history.Event) { rec.Append(e) }
	s.names, s.objects = make(map[string]int, len(start.Locks)), make([]object, len(start.Locks))
	for i, title := range start.Locks {
		s.names[title] = i
		// Lock names are arbitrary, file names are not.
		s.objects[i].number, s.objects[i].path = uint16(i), filepath.Join(s.dir, workloads.LockName(i))
	}
	s.http = &http.Server{Handler: s}
	go func() { _ = s.http.Serve(s.listener) }() // until Close
	return s.listener.Addr().String(), nil
}

func (s *server) Final(_ context.Context, number int) (resource.Final, error) {
	if number < 0 || number >= len(s.objects) {
		return resource.Final{}, fmt.Errorf("%w: there is no lock with number %d of %d", resource.ErrRefused, number,
			len(s.objects))
	}
	o := &s.objects[number]
	o.mu.Lock()
	defer o.mu.Unlock()
	version, value, err := o.load()
	if err != nil {
		return resource.Final{}, err
	}
	s.record(&history.Event{Kind: history.Final, Phase: history.Info, Lock: o.number, Value: value, Valid: version})
	return resource.Final{Value: value, Applied: version}, nil
}

// Close returns when no request is being carried out any more.
func (s *server) Close() {
	s.serving.Lock()
	s.over = true
	s.serving.Unlock()
	_ = s.listener.Close()
	if s.http != nil {
		_ = s.http.Close()
	}
}

// maxBody bounds an object in bytes: it holds only a number.
const maxBody = 32

// answer is the result of a request.
type answer struct {
	status  int
	version int64 // of the object afterwards; 0: there is none
	text    string
}

// ServeHTTP carries out one request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("an object has at most %d bytes: %v", maxBody, err), http.StatusBadRequest)
		return
	}
	s.serving.RLock()
	defer s.serving.RUnlock()
	if s.over {
		panic(http.ErrAbortHandler) // effects after Close would not be reported
	}
	a := s.carryOut(r, string(body))
	if a.version > 0 {
		w.Header().Set("ETag", etagOf(a.version))
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.text) // a client that has gone away gets no answer
}

// carryOut carries out a request and records it.
func (s *server) carryOut(r *http.Request, body string) answer {
	i, ok := s.names[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		return answer{status: http.StatusBadRequest, text: fmt.Sprintf("there is no lock %q", r.URL.Path)}
	}
	o := &s.objects[i]
	e, err := o.event(r.Header)
	if err != nil {
		return answer{status: http.StatusBadRequest, text: err.Error()}
	}
	switch r.Method {
	case http.MethodGet:
		return s.get(o, e)
	case http.MethodPut:
		e.Kind = history.EffectWrite
		if e.Value, err = strconv.ParseInt(body, 10, 64); err != nil {
			return answer{status: http.StatusBadRequest, text: fmt.Sprintf("the object is no number: %v", err)}
		}
		return s.put(o, e, r.Header)
	}
	return answer{status: http.StatusMethodNotAllowed, text: "want GET or PUT"}
}

// event starts the record of a request.
func (o *object) event(h http.Header) (history.Event, error) {
	user, err := history.ParseUser(h.Get(headerUser))
	grant, err1 := strconv.ParseUint(h.Get(headerGrant), 10, 32)
	token, err2 := strconv.ParseUint(h.Get(headerToken), 10, 64)
	return history.Event{
		Kind: history.EffectRead, Phase: history.Ok, User: user, Grant: uint32(grant), Lock: o.number, Token: token,
	}, errors.Join(err, err1, err2)
}

func (s *server) get(o *object, e history.Event) answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	version, value, err := o.load()
	if err != nil {
		return failed(err)
	}
	e.Value = value
	s.record(&e)
	if version == 0 {
		return answer{status: http.StatusNotFound, text: "there is no object yet"}
	}
	return answer{http.StatusOK, version, strconv.FormatInt(value, 10)}
}

func (s *server) put(o *object, e history.Event, h http.Header) answer {
	from, conditional, err := condition(h)
	if err != nil {
		return answer{status: http.StatusBadRequest, text: err.Error()}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	version, _, err := o.load()
	if err != nil {
		return failed(err)
	}
	if conditional && from != version {
		why := resource.Fenced(lock.Reason{Cause: lock.CauseVersionChanged, Seen: uint64(from), N: version},
			"version %d was read, but %d is current", from, version)
		e.Phase, e.Code = history.Fail, resource.RefusalCode(why)
		s.record(&e)
		resource.RecordReason(s.record, &e, why)
		return answer{http.StatusPreconditionFailed, version, why.Error()}
	}
	if conditional {
		e.Code = history.CodeConditional
	}
	if err := o.store(version+1, e.Value); err != nil {
		return failed(err)
	}
	s.record(&e)
	if err := syncDir(s.dir); err != nil {
		return failed(err)
	}
	return answer{status: http.StatusOK, version: version + 1}
}

// condition returns the version that a request demands, 0 for no object, if it is conditional.
func condition(h http.Header) (version int64, conditional bool, err error) {
	match, noneMatch := h.Get("If-Match"), h.Get("If-None-Match")
	switch {
	case match == "" && noneMatch == "":
		return 0, false, nil
	case match == "" && noneMatch == "*":
		return 0, true, nil
	case noneMatch == "":
		version, err = versionOf(match)
		return version, true, err
	}
	return 0, false, errors.New("the conditions of a PUT are If-Match with one ETag, or If-None-Match: *")
}

func failed(err error) answer {
	return answer{status: http.StatusInternalServerError, text: err.Error()}
}

// load reads the object's version and value; version 0 is no object.
func (o *object) load() (version, value int64, err error) {
	text, err := os.ReadFile(o.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &version, &value)
	}
	return version, value, err
}

// store replaces the object atomically. After an error the previous one remains.
func (o *object) store(version, value int64) error {
	fresh := o.path + ".new"
	f, err := os.Create(fresh)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %d\n", version, value)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, o.path)
}

// syncDir syncs the names in a directory to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
