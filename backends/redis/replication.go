package redis

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// replicationFacts lists what servers with replicas can be asked beside serverFacts.
func replicationFacts() map[string]string {
	return map[string]string{
		"master":   "name of the node that this one takes for the primary: itself on a primary",
		"link":     `a replica's master_link_status: up or down; "none" on a primary`,
		"offset":   "the replication offset: what a primary has written, what a replica has applied",
		"replicas": "how many replicas a primary has online; 0 on a replica",
	}
}

// askReplication answers replicationFacts.
func (ms members) askReplication(ctx context.Context, m member, fact string) (string, error) {
	section, err := m.info(ctx, "replication")
	if err != nil {
		return "", err
	}
	replica := section["role"] == "slave"
	switch fact {
	case "master":
		if !replica {
			return m.name, nil
		}
		return ms.at(upstream(section)), nil
	case "link":
		if !replica {
			return "none", nil
		}
		return section["master_link_status"], nil
	case "offset":
		if replica {
			return section["slave_repl_offset"], nil
		}
		return section["master_repl_offset"], nil
	case "replicas":
		return strconv.Itoa(online(section)), nil
	}
	return "", fmt.Errorf("redis has no fact %q", fact)
}

// upstream is the address of a replica's primary.
func upstream(replication map[string]string) string {
	return net.JoinHostPort(replication["master_host"], replication["master_port"])
}

// online counts the replicas that a primary calls online: the first copy has arrived and the stream runs.
func online(replication map[string]string) int {
	n := 0
	for i := range 100 {
		line, ok := replication["slave"+strconv.Itoa(i)]
		if !ok {
			return n
		}
		if strings.Contains(line+",", "state=online,") {
			n++
		}
	}
	return n
}
