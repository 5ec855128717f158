package story

import (
	"testing"

	"github.com/lockquake/lockquake/history"
)

func TestEveryCauseHasWords(t *testing.T) {
	t.Parallel()
	for code := range uint8(255) {
		if _, ok := history.CauseOf(history.CodeName(code)); !ok || code == history.CauseAnsweredBy || code == history.CauseOwnerValue {
			continue // they explain grants, which are described differently
		}
		if short, long := causeWords(history.Event{Code: code, Token: 1, Value: 2}, history.Event{}); short == "" || long == "" {
			t.Errorf("there are no words for %s", history.CodeName(code))
		}
	}
}
