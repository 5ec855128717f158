// Package agent acts on the processes of a run from outside: it reads their states from /proc and sends them signals.
// It runs as `lockquake agent`, one for each run, beside the targets and never inside one, and speaks JSON lines over
// its standard streams. It acts only on processes that the supervisor registered as part of the run. When its control
// stream ends, for any reason, it continues every process that it stopped and kills those registered with kill.
//
// So a fault does not outlive its supervisor. Example: a run has cut redis-2 off and moved the clock of redis-3, and
// its supervisor gets a SIGKILL. The kernel closes the pipe, and the agent's next read ends. It moves the clock back,
// removes the packet filter table, and exits within 2 s. If the agent is killed too, the kernel releases what it holds
// for the agent: traced threads, packet queues, loop devices. `lockquake clean` finds the rest by the agent's mark on
// it.
//
// Everything else is an order. Each folder below is a Mechanism, which lists the orders that it carries out; package
// all lists the mechanisms. This package knows none of them: it takes orders, keeps their undos, and runs the undos
// that are left. Client is the supervisor's end.
package agent

// Version is the version of the agent's protocol. Harness and agent are the same binary, so it must be equal.
const Version = 3
