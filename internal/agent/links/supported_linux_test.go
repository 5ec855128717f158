//go:build integration

package links

import (
	"os"
	"testing"
)

func TestSupported(t *testing.T) {
	before, err := inode("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if err := supported(); err != nil {
		if os.Geteuid() != 0 {
			t.Skip(err)
		}
		t.Error(err)
	}
	if after, err := inode("/proc/self/ns/net"); err != nil || after != before {
		t.Errorf("the process is in another namespace than before: %d, was %d, %v", after, before, err)
	}
}
