package report

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// names is what everybody in a scene is called.
type names struct {
	env   results.Env
	locks []string
	users []history.User // who has a lane: those of a story by name, others by their first hold
}

// clientWord is a client, or its first user, as texts name them.
var clientWord = regexp.MustCompile(`\bclient-[0-9]+(/0)?\b`)

func (c *names) lockName(i uint16) string {
	if int(i) < len(c.locks) {
		return c.locks[i]
	}
	return ""
}

// name is what a user is called: by the steps' name, else by its client's, with its number where two would have the
// same name.
func (c *names) name(u history.User) string {
	node := clientName(u)
	for name, n := range c.env.People {
		if n == node && u.Index() == 0 {
			return name
		}
	}
	if slices.ContainsFunc(c.users, func(o history.User) bool { return o != u && o.Client() == u.Client() }) {
		return u.String()
	}
	return node
}

// named replaces the names of users and clients in a text by those of the steps.
func (c *names) named(text string) string {
	return clientWord.ReplaceAllStringFunc(text, func(word string) string {
		if name := c.nodeName(strings.TrimSuffix(word, "/0")); name != strings.TrimSuffix(word, "/0") {
			return name
		}
		return word
	})
}

// nodeName is what a node is called; a client of the steps is called by its user.
func (c *names) nodeName(node string) string {
	for name, n := range c.env.People {
		if n == node {
			return name
		}
	}
	return node
}

// isServer tells whether a node is one of the lock service.
func (c *names) isServer(node string) bool {
	return !strings.HasPrefix(node, "client-") && !c.isResource(node)
}

// isResource tells whether a node is one of what the lock protects.
func (c *names) isResource(node string) bool {
	return slices.Contains(c.env.ResourceNodes, node) || len(c.env.ResourceNodes) == 0 && c.env.Resource != "" &&
		strings.HasPrefix(node, c.env.Resource)
}

// clientName is the node of a user.
func clientName(u history.User) string { return history.ClientName(u.Client()) }

// clientNumber is the index of a client by its node's name.
func clientNumber(node string) (int, bool) {
	number, ok := strings.CutPrefix(node, "client-")
	n, err := strconv.Atoi(number)
	return n - 1, ok && err == nil && n > 0
}
