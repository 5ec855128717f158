package main

import "path"

// family is a group of stories under one heading.
type family struct {
	Title string
	// Stories are patterns of names, in the order in which they are shown.
	Stories []string
}

// families are all of them; a story belongs to the first that names it. One that none names is on no page, which a test refuses.
var families = []family{
	{
		Title:   "What a service forgets",
		Stories: []string{"sentinel-lost-lock", "sentinel-split-brain", "cluster-lost-lock", "redis-restart-amnesia", "redlock-restart", "redlock-power-cut", "incr-token-failover", "counter-on-five", "etcd-tokens-fall", "sentinel-failover"},
	},
	{
		Title:   "Whose clock is right",
		Stories: []string{"redlock-clock-jump", "redis-clock-jump", "redlock-pause-before-reply", "redlock-client-clock", "redlock-slow-link", "*-clock-*"},
	},
	{Title: "The holder that sleeps", Stories: []string{"etcd-holder-pause", "*-holder-pause", "*-holder-pause-advisory", "*-holder-pause-single", "both-holders-paused", "session-check", "renewal-keeps", "zookeeper-long-work", "lease-dilemma"}},
	{
		Title:   "The network, and the service's own troubles",
		Stories: []string{"late-packet-*", "*-expiry", "redis-holder-cut-off", "etcd-slow-leader", "*-leader-failover", "*-minority-leader", "redlock-*", "postgres-session-end", "*-slow-network", "herd", "polling", "mass-disconnect"},
	},
	{
		Title:   "What the lock protects",
		Stories: []string{"random-token-cas", "check-then-write", "fence-*", "names-in-turn", "half-transfer", "chubby-*", "sequencer-*", "lock-delay-*", "flash-sale", "moutai", "double-booking", "gatekeeper", "work-done-twice", "counter-with-losses", "cache-stampede", "conditional-put", "etcd-lock-key", "epoch-*"},
	},
	{Title: "Recipes of old", Stories: []string{"setnx-*", "del-cascade", "get-then-del", "weak-owner-value", "shared-session", "crosswise"}},
	{Title: "Published findings, made again", Stories: []string{"jepsen-*"}},
}

// sorted puts each story into its family.
func sorted(all []*story) [][]*story {
	out := make([][]*story, len(families))
	placed := map[string]bool{}
	for i, f := range families {
		for _, pattern := range f.Stories {
			for _, s := range all {
				if ok, _ := path.Match(pattern, s.Name); ok && !placed[s.Name] {
					placed[s.Name] = true
					out[i] = append(out[i], s)
				}
			}
		}
	}
	return out
}
