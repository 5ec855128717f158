package locks

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/lock"
)

// TestVotes checks every mixture of answers.
func TestVotes(t *testing.T) {
	for _, c := range []struct {
		text     string // one letter for each server: y, n, r(efused), 0 (not sent), ? (unknown)
		own, set error  // nil, a certain error, or io.EOF: of unknown outcome
	}{
		{"yyyyy", nil, nil},
		{"yyy??", nil, nil},
		{"yyynn", nil, nil},
		{"yynnn", lock.ErrNotHeld, lock.ErrContended},
		{"nnnnn", lock.ErrNotHeld, lock.ErrContended},
		{"nnn??", lock.ErrNotHeld, lock.ErrContended},
		{"ynn??", io.EOF, io.EOF}, // the two silent ones may have set the key: then three have it
		{"nn???", io.EOF, io.EOF},
		{"yy000", io.EOF, lock.ErrNotSent}, // three certainly do not have it
		{"yyrr0", io.EOF, lock.ErrRefused},
		{"yynr0", io.EOF, lock.ErrContended},
		{"??000", io.EOF, lock.ErrNotSent},
		{"?????", io.EOF, io.EOF},
		{"00000", lock.ErrNotSent, lock.ErrNotSent},
		{"rr000", lock.ErrRefused, lock.ErrRefused},
	} {
		v := votes(c.text)
		if err := v.own(); !says(err, c.own) {
			t.Errorf("own of %s: %v, want %v", c.text, err, c.own)
		}
		if v.count(yes) >= v.quorum() {
			continue
		}
		if err := v.refusal(v.quorum()); !says(err, c.set) {
			t.Errorf("refusal of %s: %v, want %v", c.text, err, c.set)
		}
	}
}

// TestErrorWithoutMajorityHasTheAnswers: the error contains the answers, except if a majority said no: then it only says that another
// user has the lock.
func TestErrorWithoutMajorityHasTheAnswers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*lock.Vote{
		"nnnyy": nil,
		"nn000": {No: 2, NotSent: 3},
		"yyn0?": {Yes: 2, No: 1, NotSent: 1, Silent: 1},
		"rr???": {Refused: 2, Silent: 3},
	} {
		v := votes(text)
		for what, err := range map[string]error{"own": v.own(), "refusal": v.refusal(v.quorum())} {
			r, told := lock.ReasonOf(err)
			switch {
			case told != (want != nil):
				t.Errorf("%s of %s: because %+v", what, text, r)
			case told && (r.Cause != lock.CauseNoMajority || r.N != 5 || lock.VoteOf(r.Seen) != *want):
				t.Errorf("%s of %s: because %+v, which is %+v", what, text, r, lock.VoteOf(r.Seen))
			}
		}
	}
}

func votes(text string) vote {
	var v vote
	for _, letter := range text {
		a := map[rune]answer{'y': yes, 'n': no, 'r': refused, '0': notSent, '?': unknown}[letter]
		var err error
		if a != yes && a != no {
			// A certain error of one server must not leak into the error of all.
			err = fmt.Errorf("one server: %w", lock.ErrRefused)
		}
		if a == unknown {
			err = io.EOF
		}
		v.add(a, err)
	}
	return v
}

func says(err, want error) bool {
	switch want { //nolint:errorlint // plain values of the table
	case nil:
		return err == nil
	case io.EOF:
		return err != nil && !lock.Certain(err)
	}
	return errors.Is(err, want) && lock.Certain(err)
}

// TestVoteOf parses the errors of redsync.
func TestVoteOf(t *testing.T) {
	dialed := fmt.Errorf("%w: %w", lock.ErrNotSent, io.EOF)
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "of 5 nodes 5 yes, 0 no, 0 refused, 0 not reached, 0 silent"},
		{redsync.ErrFailed, "of 5 nodes 5 yes, 0 no, 0 refused, 0 not reached, 0 silent"},
		{&redsync.ErrTaken{Nodes: []int{0, 2, 4}}, "of 5 nodes 0 yes, 3 no, 0 refused, 0 not reached, 2 silent"},
		{
			errors.Join(errors.Join(errors.Join(&redsync.ErrNodeTaken{Node: 1}), redsync.ErrLockAlreadyExpired), &redsync.RedisError{Node: 3, Err: io.EOF}),
			"of 5 nodes 2 yes, 2 no, 0 refused, 0 not reached, 1 silent",
		},
		{
			errors.Join(&redsync.RedisError{Node: 1, Err: dialed}, &redsync.RedisError{Node: 2, Err: redis.TxFailedErr}),
			"of 5 nodes 3 yes, 0 no, 1 refused, 1 not reached, 0 silent",
		},
	} {
		if got := voteOf(c.err, 5).String(); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}
