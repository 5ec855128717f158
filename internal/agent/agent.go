// Package agent is what acts on the processes of a run from outside them: it reads their states from /proc and sends
// them signals. It runs as `lockquake agent`, one for each run, beside the targets and never inside one, and speaks
// JSON lines over its standard streams. It acts only on processes that it was told belong to the run. When its control
// stream ends, for whatever reason, it continues everything that it stopped and kills what it was told to kill.
//
// What it does beyond that are orders. Each folder below is a Mechanism, which says by itself what orders it carries out; all lists
// them. This package knows none: it takes orders, remembers what undoes them, and undoes what is left. Client is the supervisor's end.
package agent

// Version is the version of the agent's protocol. Harness and agent are the same binary, so it must be equal.
const Version = 2
