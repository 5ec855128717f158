// Package agent is what acts on the processes of a run from outside them: it reads their states from /proc and sends
// them signals. It runs as `lockquake agent`, one for each run, beside the targets and never inside one, and speaks
// JSON lines over its standard streams. It acts only on processes that it was told belong to the run. When its control
// stream ends, for whatever reason, it continues everything that it stopped and kills what it was told to kill.
//
// So a fault does not outlive its supervisor. Example: a run has cut redis-2 off and moved the clock of redis-3, and
// its supervisor gets a SIGKILL. The kernel closes the pipe, and the agent's next read ends. It moves the clock back,
// removes the packet filter table, and is gone within 2 s. If the agent is killed as well, the kernel undoes what it
// holds for it: traced threads, packet queues, loop devices. What is left then, `lockquake clean` finds by the agent's
// own mark on it.
//
// Everything else is an order. Each folder below is a Mechanism, which lists the orders that it carries out; all lists
// the mechanisms. This package knows none: it takes orders, remembers what undoes them, and undoes what is left. Client
// is the supervisor's end.
package agent

// Version is the version of the agent's protocol. Harness and agent are the same binary, so it must be equal.
const Version = 3
