//go:build !linux

package agent

// orders is empty: processes cannot be reached from outside here.
var orders = map[string]order{}

// links is empty as well.
type links struct{}

func newLinks() *links { return nil }

// machinery is empty as well.
var machinery map[string]bool

// OnDisk is not possible here.
func OnDisk(string, string, []string) error { return Supported() }

// signalled has nobody to make way here.
func signalled(_ Process, _ string, send func() error) error { return send() }
