package zookeeper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// A session of 2 s, 600 ms subtracted from it for followers that are cut off, and the delay of answers.
const (
	sessionLength = 2 * time.Second
	sessionLag    = 600 * time.Millisecond
	answerTime    = 300 * time.Millisecond
)

func sessionOf() *session {
	return &session{
		set: setting{ask: time.Minute, lag: sessionLag}, ready: make(chan struct{}), over: make(chan struct{}), changed: make(chan struct{}),
	}
}

// expire ends a session that has no connection.
func expire(s *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = errExpired
	close(s.over)
}

func fromSent(sent time.Time) lock.Validity {
	return lock.Until(sent.Add(sessionLength - sessionLag - backends.Drift(sessionLength)))
}

// TestSessionCountsFromTheAnsweredRequest delays every answer: to the connect, to requests, and one until it is out
// of date.
func TestSessionCountsFromTheAnsweredRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessionOf()
		if v, _ := s.validity(); v != lock.Unknown() {
			t.Errorf("before the connect: %+v", v)
		}
		connect := time.Now()
		time.Sleep(answerTime)
		s.greeted(connect, hello{timeout: sessionLength, session: 1})
		if v, _ := s.validity(); v != fromSent(connect) {
			t.Errorf("after the connect: %+v, want %+v", v, fromSent(connect))
		}
		_, changed := s.validity()
		first, second := time.Now(), time.Now().Add(answerTime)
		time.Sleep(2 * answerTime)
		s.answered(request{op: opPing, sent: first}, 1, 0)
		select {
		case <-changed:
		default:
			t.Error("nobody is told of the ping")
		}
		s.answered(request{op: opCreate, sent: second}, 2, 0)
		if v, _ := s.validity(); v != fromSent(second) {
			t.Errorf("after the create: %+v, want %+v", v, fromSent(second))
		}
		s.answered(request{op: opPing, sent: first}, 3, 0)
		s.answered(request{op: opPing, sent: time.Now()}, 4, codeMoved)
		if v, _ := s.validity(); v != fromSent(second) {
			t.Errorf("after an answer that is out of date and one that promises nothing: %+v, want %+v", v, fromSent(second))
		}
		expire(s)
		s.answered(request{op: opPing, sent: time.Now()}, 5, 0)
		if v, _ := s.validity(); v != fromSent(second) {
			t.Errorf("after its end: %+v", v)
		}
	})
}

// TestGrantOfALateAnswer takes the grant of a node whose create was answered late, and watches the session's
// renewals.
func TestGrantOfALateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessionOf()
		s.greeted(time.Now(), hello{timeout: sessionLength, session: 1})
		u := user{held: map[string]*held{}}
		sent := time.Now()
		time.Sleep(answerTime)
		s.answered(request{op: opCreate, sent: sent}, 7, 0)
		g := u.grant(lock.Request{Lock: "a"}, creation{sent: sent, zxid: 7}, &held{session: s})
		if g.Issued != sent || g.ValidUntil != fromSent(sent) || g.Token != 7 || g.Mode != lock.Exclusive {
			t.Errorf("grant %+v", g)
		}
		news := u.Watch(t.Context(), g)
		ping := time.Now()
		time.Sleep(answerTime)
		s.answered(request{op: opPing, sent: ping}, 8, 0)
		if c := <-news; c.Lost || c.ValidUntil != fromSent(ping) {
			t.Errorf("told %+v", c)
		}
		expire(s)
		if c := <-news; !c.Lost {
			t.Errorf("told %+v", c)
		}
	})
}
