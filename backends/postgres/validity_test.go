package postgres

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// answerTime is how long the server takes over each statement.
const answerTime = 20 * time.Millisecond

// slowly lets everybody in and answers every statement late: with the token 7, and that one row was changed.
func slowly(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerSlowly(c)
		}
	}()
	return l.Addr().String()
}

func answerSlowly(c net.Conn) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	if m, err := b.ReceiveStartupMessage(); err != nil {
		return
	} else if _, ok := m.(*pgproto3.StartupMessage); !ok {
		return // a cancel request: the other side waits for the end only
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	parameters := 0
	for b.Flush() == nil {
		m, err := b.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Parse:
			parameters = 3 // name, owner, TTL
			if m.Query == leaseRenew {
				parameters = 4 // and the token
			}
			b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Describe:
			types := []uint32{pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID}
			b.Send(&pgproto3.ParameterDescription{ParameterOIDs: types[:parameters]})
			if parameters == 3 {
				b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("token"), DataTypeOID: pgtype.Int8OID, DataTypeSize: 8}}})
			} else {
				b.Send(&pgproto3.NoData{})
			}
		case *pgproto3.Bind:
			b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Execute:
			time.Sleep(answerTime)
			if parameters == 3 {
				b.Send(&pgproto3.DataRow{Values: [][]byte{binary.BigEndian.AppendUint64(nil, 7)}})
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("INSERT 0 1")})
			} else {
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("UPDATE 1")})
			}
		case *pgproto3.Sync:
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

// TestLeaseCountsFromTheStatement has the server take its time, over the grant and over the renewal.
func TestLeaseCountsFromTheStatement(t *testing.T) {
	u := userOf(t, slowly(t), leaseName)
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
