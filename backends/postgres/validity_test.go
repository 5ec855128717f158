package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/lock"
)

// answerTime is how long the server takes over each statement.
const answerTime = 20 * time.Millisecond

// leases accepts every login and answers the lease's statements with token 7 and one changed row. Before each answer
// it calls heard with the statement and its owner. If that returns a code, the answer is that error; if it returns
// "silent", there is no answer.
func leases(t *testing.T, heard func(sql, owner string) (code string)) string {
	t.Helper()
	return conformance.Listen(t, func(c net.Conn) { answerLeases(c, heard) })
}

func answerLeases(c net.Conn, heard func(sql, owner string) (code string)) {
	b := pgproto3.NewBackend(c, c)
	if m, err := b.ReceiveStartupMessage(); err != nil {
		return
	} else if _, ok := m.(*pgproto3.StartupMessage); !ok {
		return // a cancel request: the other side only waits for the end
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	types := []uint32{pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID}
	parameters := map[string]int{leaseTake: 3, leaseRenew: 4, leaseGive: 2}
	prepared := map[string]string{}
	var sql, owner string
	for b.Flush() == nil {
		m, err := b.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Parse:
			sql, prepared[m.Name] = m.Query, m.Query
			b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Describe:
			b.Send(&pgproto3.ParameterDescription{ParameterOIDs: types[:parameters[sql]]})
			if sql == leaseTake {
				b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("token"), DataTypeOID: pgtype.Int8OID, DataTypeSize: 8}}})
			} else {
				b.Send(&pgproto3.NoData{})
			}
		case *pgproto3.Bind:
			sql, owner = prepared[m.PreparedStatement], string(m.Parameters[1])
			b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Execute:
			switch code := heard(sql, owner); {
			case code == "silent":
				_, _ = b.Receive()
				_, _ = b.Receive() // until the other side gives up
				return
			case code != "":
				b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code})
			case sql == leaseTake:
				b.Send(&pgproto3.DataRow{Values: [][]byte{binary.BigEndian.AppendUint64(nil, 7)}})
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("INSERT 0 1")})
			default:
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("UPDATE 1")})
			}
		case *pgproto3.Close: // of a statement that failed
			b.Send(&pgproto3.CloseComplete{})
		case *pgproto3.Sync:
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

// TestLeaseCountsFromTheStatement delays the server's answers to the grant and to the renewal.
func TestLeaseCountsFromTheStatement(t *testing.T) {
	u := userOf(t, leases(t, func(string, string) string { time.Sleep(answerTime); return "" }), leaseName)
	judge := func(what string, g lock.Grant, before time.Time, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		end, ok := g.ValidUntil.Time()
		if sent := end.Add(backends.Drift(time.Minute) - time.Minute); !ok || sent.Before(before) || time.Since(sent) < answerTime {
			t.Errorf("%s counts from %s after the call, %s ago", what, sent.Sub(before), time.Since(sent))
		}
	}
	before := time.Now()
	g, err := u.(lock.TryAcquirer).TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Minute})
	judge("the grant", g, before, err)
	if g.Token != 7 || g.Issued.Before(before) || time.Since(g.Issued) < answerTime {
		t.Errorf("token %d, issued %s after the call", g.Token, g.Issued.Sub(before))
	}
	before = time.Now()
	g, err = u.(lock.Renewer).Renew(t.Context(), g, time.Minute)
	judge("the renewal", g, before, err)
}

// TestDoubtfulLeaseIsGivenBack: the server does not answer an acquire, and cancels a release. It may then have the
// row for the user, and other users would wait for a whole TTL. The user's next attempt gives it back.
func TestDoubtfulLeaseIsGivenBack(t *testing.T) {
	type statement struct{ sql, owner string }
	said, answers := make(chan statement, 16), make(chan string, 16)
	silenced, giveUp := context.WithCancel(t.Context())
	u := userOf(t, leases(t, func(sql, owner string) string {
		said <- statement{sql, owner}
		select {
		case answer := <-answers:
			if answer == "silent" {
				giveUp()
			}
			return answer
		default:
			return ""
		}
	}), leaseName)
	acquireIn := func(ctx context.Context) (lock.Grant, error) {
		return u.(lock.TryAcquirer).TryAcquire(ctx, lock.Request{Lock: "a", TTL: time.Minute})
	}
	acquire := func() (lock.Grant, error) { return acquireIn(t.Context()) }
	says := func(what, sql string, owner *string) {
		t.Helper()
		switch x := <-said; {
		case x.sql != sql:
			t.Fatalf("%s: the user said %q", what, x.sql)
		case *owner == "":
			*owner = x.owner
		case x.owner != *owner:
			t.Errorf("%s names another owner", what)
		}
	}
	var first, second, third, fourth string

	answers <- "silent"
	if _, err := acquireIn(silenced); err == nil || lock.Certain(err) {
		t.Fatalf("an acquire without answer: %v", err)
	}
	says("the acquire without answer", leaseTake, &first)
	g, err := acquire()
	if err != nil {
		t.Fatal(err)
	}
	says("giving back what it may have taken", leaseGive, &first)
	says("the second acquire", leaseTake, &second)

	answers <- codeQueryCancelled
	if err := u.Release(t.Context(), g); !errors.Is(err, lock.ErrRefused) || errors.Is(err, lock.ErrContended) {
		t.Errorf("a release that was cancelled: %v", err)
	}
	says("the release", leaseGive, &second)
	answers <- ""
	answers <- codeQueryCancelled
	if _, err := acquire(); !errors.Is(err, lock.ErrRefused) || errors.Is(err, lock.ErrContended) {
		t.Errorf("an acquire that the server gave up by itself: %v", err)
	}
	says("giving back what the release left", leaseGive, &second)
	says("the acquire that was cancelled", leaseTake, &third)
	if _, err := acquire(); err != nil {
		t.Error(err)
	}
	says("the last acquire", leaseTake, &fourth) // the one before certainly took nothing
}
