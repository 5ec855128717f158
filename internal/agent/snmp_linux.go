package agent

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// wrongChecksums reads how many segments and datagrams the kernel of this thread's network namespace has thrown away because
// their checksum was wrong.
func wrongChecksums() (uint64, error) {
	f, err := os.Open("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, fmt.Errorf("look at the network's counters: %w", err)
	}
	defer func() { _ = f.Close() }()
	var sum uint64
	names := map[string][]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); { // a line of names, then one of numbers, for each protocol
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		protocol := fields[0]
		if names[protocol] == nil {
			names[protocol] = fields
			continue
		}
		if i := slices.Index(names[protocol], "InCsumErrors"); (protocol == "Tcp:" || protocol == "Udp:") && i > 0 && i < len(fields) {
			n, err := strconv.ParseUint(fields[i], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the network's counters: %w", err)
			}
			sum += n
		}
	}
	return sum, nil
}
