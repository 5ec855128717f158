package locks

import (
	"context"
	"errors"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// resends deletes its key as long as its own clock says that the grant is valid, and repeats a DEL whose connection
// broke before the reply. It is wrong on purpose: if the first DEL was carried out, the second deletes the key of the
// next holder.
func resends() backends.Lock {
	return expiring(backends.Lock{
		Name:  "resends",
		Doc:   "set-px-del that checks its clock first, and resends its DEL when the connection breaks before the reply.",
		Wrong: "a release that is sent twice frees the next holder's lock",
		Found: backends.FoundIn("reset-release", "a double grant", "double_grants 0: found",
			"errors-release", "errors-silence", "release-forged"),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial:   dialRecipe(means{takePx, deleteTwice}),
	})
}

func deleteTwice(ctx context.Context, l *recipe, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	if !g.ValidUntil.Covers(time.Now()) {
		l.held.drop(g)
		return notHeld(g)
	}
	return again(func() error { return l.deleteKey(ctx, g) })
}

// again repeats a call once if the connection was lost.
func again(do func() error) error {
	err := do()
	if err != nil && !errors.Is(err, lock.ErrRefused) && !errors.Is(err, lock.ErrNotHeld) {
		return do()
	}
	return err
}
