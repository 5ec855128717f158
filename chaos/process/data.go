package process

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/history"
)

// dataOption is the key `data`: what is done to the data of a killed node.
type dataOption string

const (
	keepData    dataOption = "keep"
	loseData    dataOption = "lose"
	saveData    dataOption = "save"    // it is copied
	restoreData dataOption = "restore" // the copy replaces it: later writes are gone
)

func (f dataOption) check(fault string) error {
	if options := []dataOption{keepData, loseData, saveData, restoreData}; !slices.Contains(options, f) {
		return fmt.Errorf("data of %s is %q: want one of %v", fault, f, options)
	}
	return nil
}

// needs returns the capabilities of that kind, plus those that the option requires.
func (f dataOption) needs(k chaos.Kind) []chaos.Capability {
	if f.changes() {
		return append(slices.Clone(k.Needs), disk.CanData)
	}
	return k.Needs
}

// possible returns an error for targets whose data cannot be changed.
func (f dataOption) possible(on []chaos.Node) error {
	if !f.changes() {
		return nil
	}
	_, err := chaos.Capable[disk.DataHolder](on, disk.CanData)
	return err
}

// apply applies the option to the data of an ended process.
func (f dataOption) apply(ctx context.Context, d disk.Data) error {
	switch f {
	case loseData:
		return d.Lose(ctx)
	case saveData:
		return d.Save(ctx)
	case restoreData:
		return d.Restore(ctx)
	default:
		return nil
	}
}

// changes reports whether the option changes the directory.
func (f dataOption) changes() bool { return f != keepData && f != "" }

// dataSeen is what was seen of one target's data directory. The zero value is unknown.
type dataSeen struct {
	data   disk.Data
	known  bool // it could be listed after the process had ended
	before disk.Listing
	dead   disk.Listing // after the process had ended and the option was applied
	why    error        // why it could not be inspected
}

// openData opens and lists the data directory of a process that is about to be killed. A failure stops the fault only
// if the data is to be changed.
func openData(ctx context.Context, n chaos.Node, option dataOption) (*dataSeen, error) {
	l := &dataSeen{}
	h, ok := chaos.As[disk.DataHolder](n)
	if !ok {
		return l, nil
	}
	d, err := h.HoldData(ctx)
	if err == nil {
		l.data = d
		l.before, err = d.List(ctx)
	}
	if err != nil && option.changes() {
		return l, errors.Join(err, l.release(ctx))
	}
	if !errors.As(err, new(chaos.Unavailable)) {
		l.why = err
	}
	return l, nil
}

func (l *dataSeen) release(ctx context.Context) error {
	if l.data == nil {
		return nil
	}
	d := l.data
	l.data = nil
	return d.Release(ctx)
}

// settle is called after the process has ended: it applies the option and lists the directory again. It returns the
// receipt r of the death, with a worse status if the directory is not as it should be.
func (l *dataSeen) settle(ctx context.Context, option dataOption, r history.Receipt) (history.Receipt, error) {
	if l.data == nil {
		if l.why != nil {
			r.Evidence += fmt.Sprintf("; its data directory could not be read: %v", l.why)
		}
		return r, nil
	}
	died, err := l.data.List(ctx)
	if err == nil {
		err = option.apply(ctx, l.data)
	}
	var failed error
	l.dead, failed = l.data.List(ctx)
	err = errors.Join(err, failed, l.release(ctx))
	l.known = failed == nil
	r.Evidence += fmt.Sprintf("; its data directory held %s before, %s when it was dead", l.before, died)
	switch option {
	case loseData:
		r.Evidence += fmt.Sprintf(", then %s", l.dead)
	case saveData:
		r.Evidence += ", and a copy of it was saved"
	case restoreData:
		r.Evidence += fmt.Sprintf(", then the saved copy, %s", l.dead)
	default:
	}
	switch {
	case err != nil:
		return r, fmt.Errorf("its data directory: %w", err)
	case option == loseData && l.dead.Entries > 0:
		r.Status = history.NotInstalled
		r.Evidence += ": it was not lost"
	case option == loseData && l.before.Entries == 0 && died.Entries == 0:
		r.Status = history.Indeterminate
		r.Evidence += ": there was nothing to lose"
	case option != loseData && l.before.Entries > 0 && l.dead.Entries == 0:
		r.Status = history.NotInstalled
		r.Evidence += ": it was lost"
	}
	return r, nil
}

// again checks that the new process has the same data directory as before.
func (l *dataSeen) again(ctx context.Context, n chaos.Node, r history.Receipt) history.Receipt {
	h, ok := chaos.As[disk.DataHolder](n)
	if !l.known || !ok {
		return r
	}
	var now disk.Listing
	d, err := h.HoldData(ctx)
	if err == nil {
		now, err = d.List(ctx)
		err = errors.Join(err, d.Release(ctx))
	}
	switch {
	case err != nil:
		r.Evidence += fmt.Sprintf("; its data directory cannot be read now: %v", err)
	case now.ID != l.dead.ID:
		r.Status = history.Indeterminate
		r.Evidence += fmt.Sprintf("; it has another data directory now (%s, not %s), which holds %s", now.ID, l.dead.ID,
			now)
	default:
		r.Evidence += fmt.Sprintf("; the same directory holds %s now", now)
	}
	return r
}
