package main

import "path"

// family is a group of stories that answer one question.
type family struct {
	Question string
	// Stories holds patterns of names, in the order in which they are shown.
	Stories []string
}

// families lists all of them; a story belongs to the first that matches it. A test rejects a story that matches none:
// it would be on no page.
var families = []family{
	{
		Question: "Does a failover or a restart lose my lock?",
		Stories: []string{
			"sentinel-lost-lock", "sentinel-split-brain", "cluster-lost-lock", "redis-restart-amnesia",
			"redis-evicted",
			"redlock-restart", "redlock-power-cut", "incr-token-failover",
			"counter-on-five", "etcd-tokens-fall", "sentinel-failover",
		},
	},
	{
		Question: "Whose clock must be right?",
		Stories: []string{
			"redlock-clock-jump", "redis-clock-jump", "redlock-pause-before-reply",
			"redlock-client-clock", "redlock-slow-link", "*-clock-*",
		},
	},
	{
		Question: "What if the holder sleeps?",
		Stories: []string{
			"etcd-holder-pause", "*-holder-pause", "*-holder-pause-advisory", "*-holder-pause-single",
			"redis-holder-throttled", "redis-holder-suspended", "both-holders-paused", "session-check", "lease-guard", "renewal-keeps",
			"zookeeper-long-work", "lease-dilemma",
		},
	},
	{
		Question: "What do network faults and faults of the service do?",
		Stories: []string{
			"late-packet-*", "*-expiry", "redis-holder-cut-off", "etcd-slow-leader", "*-leader-failover",
			"*-minority-leader", "redlock-*", "postgres-session-end",
			"*-slow-network", "herd", "polling", "mass-disconnect",
		},
	},
	{
		Question: "What must the resource behind the lock check?",
		Stories: []string{
			"random-token-cas", "check-then-write", "fence-*", "names-in-turn", "half-transfer", "chubby-*",
			"sequencer-*", "lock-delay-*", "conditional-put",
			"etcd-lock-key", "epoch-*",
		},
	},
	{
		Question: "What is the lock for: correctness, or less work?",
		Stories: []string{
			"flash-sale", "moutai", "double-booking", "gatekeeper", "work-done-twice",
			"counter-with-losses", "cache-stampede",
		},
	},
	{
		Question: "Which mistakes do programs make?",
		Stories:  []string{"setnx-*", "del-cascade", "get-then-del", "weak-owner-value", "shared-session", "crosswise"},
	},
	{Question: "Can published findings be reproduced?", Stories: []string{"jepsen-*"}},
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
