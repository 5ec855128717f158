package scene

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Names has the display names in a scene.
type Names struct {
	Env   results.Env
	Locks []string
	Users []history.User // users with a lane: those of a story by name, others by their first hold
}

// clientWord matches a client, or its first user, in texts.
var clientWord = regexp.MustCompile(`\bclient-[0-9]+(/0)?\b`)

// LockName returns the name of a lock by its index in the events; "" if it has none.
func (c *Names) LockName(i uint16) string {
	if int(i) < len(c.Locks) {
		return c.Locks[i]
	}
	return ""
}

// Name returns a user's display name: the steps' name, else that of its client, with its number if two would have the
// same name.
func (c *Names) Name(u history.User) string {
	node := history.ClientName(u.Client())
	for name, n := range c.Env.People {
		if n == node && u.Index() == 0 {
			return name
		}
	}
	if slices.ContainsFunc(c.Users, func(o history.User) bool { return o != u && o.Client() == u.Client() }) {
		return u.String()
	}
	return node
}

// Named replaces the names of users and clients in a text with those of the steps.
func (c *Names) Named(text string) string {
	return clientWord.ReplaceAllStringFunc(text, func(word string) string {
		if name := c.NodeName(strings.TrimSuffix(word, "/0")); name != strings.TrimSuffix(word, "/0") {
			return name
		}
		return word
	})
}

// NodeName returns a node's display name; a client of the steps has its user's name.
func (c *Names) NodeName(node string) string {
	for name, n := range c.Env.People {
		if n == node {
			return name
		}
	}
	return node
}

// IsServer reports whether a node belongs to the lock service.
func (c *Names) IsServer(node string) bool {
	return !strings.HasPrefix(node, "client-") && !c.IsResource(node)
}

// IsResource reports whether a node belongs to what the lock protects.
func (c *Names) IsResource(node string) bool {
	return slices.Contains(c.Env.ResourceNodes, node) || len(c.Env.ResourceNodes) == 0 && c.Env.Resource != "" &&
		strings.HasPrefix(node, c.Env.Resource)
}
