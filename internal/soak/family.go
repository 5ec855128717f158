package main

import (
	"fmt"
	"strings"
)

// familyStory is the story whose figures are rates: it is run once for each of the family's members, and their runs are pooled.
const familyStory = "jepsen-etcd-lock"

// familyRuns is how often each member is run before its figures are quoted.
const familyRuns = 5

// Member is what tells a row from the others of the family.
type Member struct {
	Lock    string
	Version string // of etcd
	Target  string // whose processes are stopped
	Guard   string // of the set; "" is none
}

// What the members are made of. v3lock-blind is the lock as Jepsen's test called it.
var (
	familyLocks    = []string{"v3lock-blind", "v3lock", "mutex"}
	familyVersions = []string{"3.4", "built-in"}
	familyTargets  = []string{"leader or all", "leader", "one", "all", "holder"}
)

// familyOwn are the members that the story's file has, by the words of their twins. The set of the guarded takes nothing from a holder that is late.
var familyOwn = []struct {
	twin string
	Member
}{
	{"", Member{Lock: "v3lock-blind", Version: "3.4", Target: "leader or all"}},
	{"-careful", Member{Lock: "v3lock", Version: "3.4", Target: "leader or all"}},
	{"-mutex", Member{Lock: "mutex", Version: "3.4", Target: "leader or all"}},
	{"-leader", Member{Lock: "v3lock-blind", Version: "3.4", Target: "leader"}},
	{"-one", Member{Lock: "v3lock-blind", Version: "3.4", Target: "one"}},
	{"-all", Member{Lock: "v3lock-blind", Version: "3.4", Target: "all"}},
	{"-holder", Member{Lock: "v3lock-blind", Version: "3.4", Target: "holder"}},
	{"-built-in", Member{Lock: "v3lock-blind", Version: "built-in", Target: "leader or all"}},
	{"-fenced", Member{Lock: "v3lock", Version: "3.4", Target: "leader or all", Guard: "fenced"}},
	{"-in-etcd", Member{Lock: "v3lock", Version: "3.4", Target: "leader or all", Guard: "set in etcd"}},
}

// familyRows are all members with containers, and those that the story's file has, as other stories, as processes too.
func familyRows() []Row {
	var docker, local []Row
	row := func(scenario string, m Member, set []string) Row {
		return Row{
			Scenario: scenario, Member: &m, Set: set, File: "stories/" + familyStory + ".yaml", Backend: "etcd", Provider: "docker",
			Count: familyRuns, Shows: "at least 20 grants",
		}
	}
	for _, version := range familyVersions {
		for _, l := range familyLocks {
			for _, target := range familyTargets {
				m := Member{Lock: l, Version: version, Target: target}
				docker = append(docker, row(familyStory, m, m.set()))
			}
		}
	}
	for _, own := range familyOwn {
		r := row(familyStory+own.twin, own.Member, nil)
		if own.Guard != "" {
			docker = append(docker, r)
		}
		r.Provider, r.Count, r.Optional = "local", localRuns, true
		local = append(local, r)
	}
	return append(docker, local...)
}

// set makes the member out of the story's main form. Double grants are forbidden where no server of etcd 3.4 is stopped.
func (m Member) set() []string {
	out := []string{"backend.lock=" + m.Lock, "backend.version=" + m.Version, "chaos.0.on=" + m.Target}
	if m.Version != "3.4" || m.Target == "holder" {
		out = append(out, "expect.double_grants=0")
	}
	return out
}

// id names the member among the family's.
func (m Member) id() string {
	return "+" + strings.Join([]string{m.Lock, m.Version, strings.ReplaceAll(m.Target, " ", "-")}, "+")
}

// pool is what the runs of some rows come to together. Unknown runs are counted and no more.
type pool struct {
	runs, unknown             int
	grants                    int64
	acknowledged, lost        int64
	double, overlapping, late int64
	least, most               float64 // share lost of one run
}

// pooled adds up the runs of the rows.
func pooled(states []State) pool {
	p := pool{least: 1}
	for _, s := range states {
		for _, r := range s.Runs {
			if !r.judged() {
				p.unknown++
				continue
			}
			p.runs++
			p.grants += r.Grants
			p.acknowledged += r.Acknowledged
			lost := r.count("lost_elements")
			p.lost += lost
			p.double += r.count("double_grants")
			p.overlapping += r.count("overlapping_holds")
			p.late += r.count("stale_writes")
			share := float64(lost) / float64(r.Acknowledged)
			p.least, p.most = min(p.least, share), max(p.most, share)
		}
	}
	return p
}

// judged tells whether a run says something about losses.
func (r Run) judged() bool {
	return (r.Verdict == "pass" || r.Verdict == "fail") && r.Acknowledged > 0 && r.Counts["lost_elements"] != nil
}

// count is 0 where the count was not judged.
func (r Run) count(name string) int64 {
	if v := r.Counts[name]; v != nil {
		return *v
	}
	return 0
}

// share writes how much was lost, with its interval.
func (p pool) share() string {
	if p.acknowledged == 0 {
		return "–"
	}
	low, high := clopperPearson(p.lost, p.acknowledged)
	return fmt.Sprintf("%.1f %% (%.1f–%.1f)", 100*float64(p.lost)/float64(p.acknowledged), 100*low, 100*high)
}

// demand is a question that is asked of pooled members only.
type demand struct {
	text string
	of   func(Member) bool
	met  func(pool) bool
}

var demands = []demand{
	{
		text: "More than none is lost by the unfenced members whose leader is stopped",
		of:   func(m Member) bool { return m.Guard == "" && m.Target == "leader" },
		met:  func(p pool) bool { return p.lost > 0 },
	},
	{
		text: "None is lost by the fenced members",
		of:   func(m Member) bool { return m.Guard != "" },
		met:  func(p pool) bool { return p.lost == 0 },
	},
}

// asked returns the pooled runs of the rows that a demand is asked of, how many rows those are, how many of them were run, and how many not as
// often as they must be.
func (d demand) asked(rows []Row, states []State) (p pool, all, made, short int) {
	var of []State
	for i, row := range rows {
		if row.Member == nil || !d.of(*row.Member) {
			continue
		}
		all++
		if states[i].done(row) < row.Count {
			short++
		}
		if len(states[i].Runs) > 0 {
			of = append(of, states[i])
		}
	}
	return pooled(of), all, len(of), short
}

// answer says whether a demand is met, by which figures, and what is still to be run.
func (d demand) answer(rows []Row, states []State) string {
	p, all, made, short := d.asked(rows, states)
	verdict := "not met"
	switch {
	case p.runs == 0:
		return d.text + ": not run yet."
	case d.met(p):
		verdict = "met"
	}
	out := fmt.Sprintf("%s: **%s**; %d of %d acknowledged elements in %d runs of %d rows, %s.",
		d.text, verdict, p.lost, p.acknowledged, p.runs, made, p.share())
	if short > 0 {
		out += fmt.Sprintf(" Of all %d rows that it is asked of, %d are not run as often as they must be.", all, short)
	}
	return out
}

// family is the section of the page about the family; rows that were not run are left out.
func family(rows []Row, states []State) string {
	var b strings.Builder
	b.WriteString(`
## Jepsen's test of etcd's locks

The family ` + "`" + familyStory + "`" + `: five members and five clients, client i talks to member i only, leases of 2 s, holds drawn from 0 to 2 s,
whoever is named under *stopped* is sent SIGSTOP for 5 s in every 10, 120 s a run. A client gives up a call after 5 s too: had it more patience than
the pause is long, a stopped cluster would show as waiting, and with less as errors. *Acknowledged* is an element whose write was made, whatever
the lock said after. The interval of what is lost is that of Clopper and Pearson, 95 %, over all runs together, as if each element were lost or kept by
itself; elements are lost in bunches, so the least and the most of one run stand beside it. Runs that are unknown are not pooled.
Jepsen published about 18 % for etcd 3.4.3 (lock v3lock-blind, leader or all, pauses of other lengths).

| lock | etcd | stopped | set | provider | runs | unknown | fail | grants judged | acknowledged | lost | share lost (95 %) | least–most of a run | double grants | overlapping holds | stale writes | commit | date | load |
|`)
	b.WriteString(strings.Repeat("---|", 19) + "\n")
	made := 0
	for i, row := range rows {
		if row.Member != nil && len(states[i].Runs) > 0 {
			made++
			b.WriteString(memberLine(row, states[i]))
		}
	}
	if made == 0 {
		return ""
	}
	b.WriteString("\n")
	for _, d := range demands {
		b.WriteString("- " + d.answer(rows, states) + "\n")
	}
	return b.String()
}

func memberLine(row Row, s State) string {
	p := pooled([]State{s})
	guard := row.Member.Guard
	if guard == "" {
		guard = "unguarded"
	}
	failed := 0
	for _, r := range s.Runs {
		if r.Verdict != string(passed) && r.Verdict != "unknown" {
			failed++
		}
	}
	spread := "–"
	if p.runs > 0 {
		spread = fmt.Sprintf("%.0f–%.0f %%", 100*p.least, 100*p.most)
	}
	runs := fmt.Sprint(len(s.Runs)) + s.progress(row)
	low, high := loads(s.Runs)
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %d | %d | %d | %d | %d | %s | %s | %d | %d | %d | %s | %s | %s; %s |\n",
		row.Member.Lock, row.Member.Version, row.Member.Target, guard, row.Provider, runs, p.unknown, failed, p.grants, p.acknowledged, p.lost,
		p.share(), spread, p.double, p.overlapping, p.late, s.from(), s.Runs[len(s.Runs)-1].Began.Format("2006-01-02"), low, high)
}
