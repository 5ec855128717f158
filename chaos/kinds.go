package chaos

import "fmt"

// Kinds lists all faults.
func Kinds() []Kind {
	return []Kind{
		noopKind(), pauseKind(), freezeKind(), killKind(), stopKind(), restartKind(), partitionKind(), holdBackKind(), clockJumpKind(), clockDriftKind(),
		failoverKind(),
		delayKind(), lossKind(), duplicateKind(), reorderKind(), corruptKind(), rateKind(),
		slowDiskKind(), powerLossKind(),
	}
}

// Lookup returns the fault of that name.
func Lookup(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Trials lists the keys with which the fault is tried out, at least one.
func (k Kind) Trials() []string {
	if len(k.Try) == 0 {
		return []string{""}
	}
	return k.Try
}

// Fits tells whether an entry of a schedule makes sense for this fault.
func (k Kind) Fits(e Entry) error {
	switch {
	case !k.Lasting && e.For > 0:
		return fmt.Errorf("%s is over when it is done; leave out for", k.Name)
	case k.Lasting && e.Every > 0 && e.For == 0:
		return fmt.Errorf("%s stands until it is healed, so it cannot come again every %s; write for as well", k.Name, e.Every)
	}
	return nil
}
