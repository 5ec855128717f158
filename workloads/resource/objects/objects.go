// Package objects keeps what locks protect in an object store that is accessed over HTTP. Its only guard is a
// conditional request, as in Amazon S3 since 2024.
package objects

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

const (
	name = "objects"
	port = 7072
)

// Kind describes the store with an object for each lock.
func Kind() resource.Kind {
	return resource.Kind{
		Name: name,
		Doc:  "An object store over HTTP: one object per lock, read and written whole, with an ETag that changes with each write; without tokens.",
		Guards: []resource.Guard{
			{Name: resource.GuardNone, Doc: "refuses nothing: a plain PUT"},
			{
				Name: resource.GuardIfMatch, Conditional: true,
				Doc: "a PUT requires the ETag that was read, or that there is no object yet (If-Match, If-None-Match: *), and is refused otherwise",
			},
		},
		Specs: func() []node.Spec {
			return []node.Spec{{
				Name: name, Role: node.Resource, Image: node.SelfProgram, Stdio: true,
				Ports: []node.Port{{Name: name, Number: port}},
				Command: func(p node.Place) []string {
					return node.Own(name, "--listen", p.Address(name, name), "--dir", p.Dir)
				},
			}}
		},
		Dial: dial,
	}
}

// The headers that identify the sender for the store's log.
const (
	headerUser  = "Lockquake-User" // "client-1/0"
	headerGrant = "Lockquake-Grant"
	headerToken = "Lockquake-Token"
)

// etagOf returns the ETag of a version, which is the number of writes up to it.
func etagOf(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// versionOf returns the version of an ETag.
func versionOf(etag string) (int64, error) {
	v, err := strconv.ParseInt(strings.Trim(etag, `"`), 10, 64)
	if err != nil || etag != etagOf(v) || v < 1 {
		return 0, fmt.Errorf("ETag %s is not from this store", etag)
	}
	return v, nil
}

// link is a user's connection.
type link struct {
	address string
	guard   string
	client  http.Client
	seen    resource.Sightings
}

// dial makes a client with a single connection. It ignores the machine's proxy settings.
func dial(_ context.Context, t resource.Target) (resource.Connection, error) {
	return &link{
		address: t.Address, guard: t.Guard, seen: resource.Sightings{},
		client: http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, DisableCompression: true}},
	}, nil
}

// Read reads the value that a lock protects: 0 without an object.
func (l *link) Read(ctx context.Context, a resource.Access) (int64, error) {
	r, err := l.request(a, http.MethodGet, "")
	if err != nil {
		return 0, err
	}
	status, text, version, err := l.do(ctx, r)
	switch {
	case err != nil:
		return 0, err
	case status == http.StatusNotFound:
		l.seen[a.Lock] = resource.Sighting{Grant: a.Grant}
		return 0, nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	l.seen[a.Lock] = resource.Sighting{Grant: a.Grant, Value: value, Version: version}
	return value, nil
}

// Write writes that value. Under GuardIfMatch a grant that has seen no object may only create one.
func (l *link) Write(ctx context.Context, a resource.Access, value int64) error {
	r, err := l.request(a, http.MethodPut, strconv.FormatInt(value, 10))
	if err != nil {
		return err
	}
	if from := l.seen.Of(a); l.guard == resource.GuardIfMatch {
		if from.Version == 0 {
			r.Header.Set("If-None-Match", "*")
		} else {
			r.Header.Set("If-Match", etagOf(from.Version))
		}
	}
	_, _, version, err := l.do(ctx, r)
	if err == nil {
		l.seen[a.Lock] = resource.Sighting{Grant: a.Grant, Value: value, Version: version}
	}
	return err
}

func (l *link) request(a resource.Access, method, body string) (*http.Request, error) {
	r, err := http.NewRequest(method, "http://"+l.address+"/"+url.PathEscape(a.Lock), strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", resource.ErrRefused, name, err)
	}
	r.Header.Set(headerUser, a.User.String())
	r.Header.Set(headerGrant, strconv.FormatUint(uint64(a.Grant), 10))
	r.Header.Set(headerToken, strconv.FormatUint(uint64(a.Token), 10))
	return r, nil
}

// do sends a request and reads its answer. The HTTP client sends a PUT again only if nothing of it was written.
func (l *link) do(ctx context.Context, r *http.Request) (status int, text string, version int64, err error) {
	connected := false
	trace := httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	answer, err := l.client.Do(r.WithContext(httptrace.WithClientTrace(ctx, &trace)))
	var body []byte
	if err == nil {
		defer answer.Body.Close()
		body, err = io.ReadAll(answer.Body)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if !connected {
			err = fmt.Errorf("%w: %w", lock.ErrNotSent, err)
		}
		return 0, "", 0, fmt.Errorf("%s: %w", name, err)
	}
	status, text = answer.StatusCode, string(body)
	switch {
	case status == http.StatusOK:
		if version, err = versionOf(answer.Header.Get("ETag")); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	case status == http.StatusNotFound && r.Method == http.MethodGet:
	case status == http.StatusPreconditionFailed:
		err = fmt.Errorf("%w: %s: %s", resource.ErrFenced, answer.Status, text) // the store's log has the reason
	case status < http.StatusInternalServerError:
		err = fmt.Errorf("%w: %s: %s", resource.ErrRefused, answer.Status, text)
	default:
		err = fmt.Errorf("%s: %s: %s", name, answer.Status, text)
	}
	return status, text, version, err
}

// Close closes the connection.
func (l *link) Close() error {
	l.client.CloseIdleConnections()
	return nil
}
