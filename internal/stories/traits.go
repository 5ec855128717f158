package stories

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends"
)

// trait is something a story can require of a lock, or a line of it can depend on.
type trait struct {
	word  string
	where string // in a table of stories: the locks that stories with this need apply to
	lacks string // why such stories do not apply to a lock; %s is its backend
	of    func(Subject) bool
}

// traits lists all of them.
var traits = []trait{
	{
		"processes", "clients are processes", "the clients of %s are not processes, so faults cannot hit them",
		func(s Subject) bool { return !s.InProcess },
	},
	{"expires", "grants end", "the lock's grants have no expiry", func(s Subject) bool { return s.Lock.Offers.Expires }},
	{
		"renews", "the holder can extend", "the lock cannot be renewed by a call",
		func(s Subject) bool { return s.Lock.Offers.Renewal == "call" },
	},
	{
		"extended", "grants are extended", "nothing extends the lock's grants",
		func(s Subject) bool { return s.Lock.Offers.Renewal != "none" },
	},
	{
		"keeps", "a holder can keep the lock", "the lock's grants expire, and nothing extends them",
		func(s Subject) bool { return !s.Lock.Offers.Expires || s.Lock.Offers.Renewal != "none" },
	},
	{
		"lapses", "nothing renews by itself", "the lock renews grants by itself",
		func(s Subject) bool { return !s.Keeps && s.Lock.Offers.Renewal != "background" },
	},
	{
		"renews-itself", "grants are renewed without their users", "only users renew the lock's grants",
		func(s Subject) bool { return s.Keeps || s.Lock.Offers.Renewal == "background" },
	},
	{
		"hung-bound", "a hung user has a bound", "the lock declares no bound for a user that hangs",
		func(s Subject) bool { return s.hung() > 0 },
	},
	{
		"bounded", "the recovery has a bound", "the lock has no recovery bound",
		func(s Subject) bool { return s.bound() > 0 },
	},
	{
		"any-ttl", "TTLs may be fractions of a second", "a TTL of %s must be a whole number of seconds",
		func(s Subject) bool { return !s.Servers.WholeSeconds },
	},
	{
		"uncapped-ttl", "TTLs may be long", "%s shortens a long TTL",
		func(s Subject) bool { return !s.Servers.CapsTTL },
	},
	{
		"watches", "the lock reports a loss", "the lock reports no loss",
		func(s Subject) bool { return s.Lock.Offers.LossSignal },
	},
	{
		"tokens", "the lock has tokens", "the lock has no fencing tokens",
		func(s Subject) bool { return s.Lock.Offers.Token != backends.TokenNone },
	},
	{
		"fair", "the lock is fair", "the lock does not promise to serve users in order",
		func(s Subject) bool { return s.Lock.Offers.Fair },
	},
	{
		"shared", "the lock can be shared", "the lock can only be held by one user",
		func(s Subject) bool { return s.Lock.Offers.Shared },
	},
	{
		"reenters", "a holder can take the lock again", "the lock is not re-entrant",
		func(s Subject) bool { return s.Lock.Offers.Reenters },
	},
	{
		"permits", "the lock can have several permits", "the lock is held by one user at a time",
		func(s Subject) bool { return s.Lock.Offers.Permits },
	},
	{
		"blocking", "the lock waits in the service", "the lock is polled for",
		func(s Subject) bool { return s.Lock.Offers.Blocking },
	},
	{
		"wall-clock", "a wall clock ends grants", "no wall clock ends the lock's grants",
		func(s Subject) bool { return s.Lock.Offers.WallClock },
	},

	{"asked", "the service can be asked", "the service cannot be asked for the owner of the lock", Subject.asked},
	{
		"tells-gone", "a release reports that the grant was gone", "a release of a lost grant is answered ok",
		func(s Subject) bool { return s.asked() && !s.Lock.YesToGone },
	},
	{"counted", "the service counts requests", "the service does not count requests", Subject.counted},
	{
		"counts-calls", "the service counts requests at once", "the service counts requests late",
		func(s Subject) bool { return !s.Servers.CountsLate },
	},
	{
		"counts-connections", "the service counts connections", "the service does not count connections",
		func(s Subject) bool { return s.Servers.CountsConnections },
	},

	{
		"replies-in", "the lock asks a majority, and announces that their replies are in",
		"the lock announces no point between the replies of a majority and its decision",
		func(s Subject) bool { return slices.Contains(s.points()["acquire-points"], "replies-in") },
	},
	{
		"independent-servers", "a majority of independent servers is asked",
		"the lock asks no majority of independent servers",
		func(s Subject) bool { return s.Servers.Majority == backends.ByClients },
	},
	{
		"patient", "one service is asked", "the lock waits for no server that long",
		func(s Subject) bool { return s.Servers.Majority != backends.ByClients },
	},
	{
		"several-servers", "several servers", "the service is one server, and the story hang covers its silence",
		func(s Subject) bool { return s.Servers.Majority != backends.NoMajority },
	},
	{
		"takeover", "etcd or ZooKeeper", "no server takes over from another without losing grants",
		func(s Subject) bool { return s.Servers.Majority == backends.AmongThem },
	},
	{
		"no-failover", "not Sentinel or Cluster",
		"a silent server is replaced by one that may lack its grants",
		func(s Subject) bool { return !s.Servers.Standby },
	},
	{
		"forgets", "a server that lost its data serves without them",
		"a server of %s that lost its data does not serve without them",
		func(s Subject) bool { return s.Servers.Forgets },
	},
	{
		"refuses-renewals", "Redis without failover, or Postgres", "no setting of %s makes its servers refuse renewals",
		func(s Subject) bool { return s.Servers.RefusesRenewals },
	},

	{"quick", "the suite is quick", "the suite is not quick", func(s Subject) bool { return s.Quick }},
}

// counted reports whether the service can be queried for the state of a lock and for its requests.
func (s Subject) counted() bool { return !s.Servers.Unasked }

func (s Subject) asked() bool { return !s.Elsewhere && s.counted() }

// traitOf returns the trait with a name.
func traitOf(word string) (trait, bool) {
	i := slices.IndexFunc(traits, func(x trait) bool { return x.word == word })
	if i < 0 {
		return trait{}, false
	}
	return traits[i], true
}

// words lists the names of all traits, for messages.
func words() string {
	var out []string
	for _, x := range traits {
		out = append(out, x.word)
	}
	return strings.Join(out, ", ")
}
