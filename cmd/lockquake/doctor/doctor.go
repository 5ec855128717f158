// Package doctor implements the verb doctor. It tries every fault on throwaway nodes and caches what worked.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results/figure"
)

// Diagnosis is the result of doctor.
type Diagnosis struct {
	Provider string                `json:"provider"` // the provider that auto chooses
	Reason   string                `json:"reason"`
	Machine  []cluster.ProbeResult `json:"machine"`
	Hosts    []cluster.HostSeen    `json:"hosts,omitempty"` // of a swarm
	Faults   []Cell                `json:"faults"`
}

const doctorDoc = `Doctor checks what runs need: an engine and its permissions, root, namespaces, ptrace, programs. Then it
tries each mode of each fault on nodes of its own: it injects the fault, confirms it by the receipt, heals it, and
confirms the heal. That takes a minute or two per provider. Successes are cached until the machine reboots or the
program changes; failures are tried again each time. --fresh tries everything again. Doctor leaves nothing behind.

In the matrix, "yes" means one mechanism; a word such as netem or vdso names the mechanism; "no" has its reason below;
"-" means that the fault does not apply. A link fault is tried on the links of a client to every other node. The exit
code is 3 if no provider is available.

For a Docker Swarm it lists all hosts: what the agent of each cannot do, or why the host can have no nodes; the round
trip between each two hosts, and their possible clock error. Faults are then tried on the hosts that can have nodes.`

// everyProvider selects all available providers.
const everyProvider = "all"

// Command is the verb doctor.
func Command(std cli.Streams) *cobra.Command {
	var fresh, verbose bool
	var provider string
	c := &cobra.Command{
		Use:               "doctor",
		Short:             "Try every fault on this machine, and report why some are unavailable",
		Long:              doctorDoc,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cli.AddFormat(c, "text", "json")
	c.Flags().StringVar(&provider, "provider", everyProvider,
		"provider for the trials: docker, local, swarm, or all that are available")
	known := append([]string{everyProvider}, nodes.Providers[1:]...)
	// The flag was added above: this cannot fail.
	_ = c.RegisterFlagCompletionFunc("provider", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().BoolVar(&fresh, "fresh", false, "try everything again, ignoring cached successes")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log progress to standard error")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.Check(); err != nil {
			return err
		}
		with := nodes.Providers[1:]
		switch {
		case !slices.Contains(known, provider):
			return cli.Usagef("doctor --provider: there is no %q; there are %s", provider, strings.Join(known, ", "))
		case provider != everyProvider:
			if _, _, err := nodes.Choose(c.Context(), provider); err != nil {
				return err
			}
			with = []string{provider}
		}
		tell := cli.NewProgress(std.Err, true)
		stop := cli.Interruptible(c.Context(), tell)
		defer stop.Done()
		log := slog.New(slog.DiscardHandler) // nobody needs the logs of throwaway nodes
		if verbose {
			log = cli.Logger(std.Err, verbose)
		}
		doc, done, err := newDoctor(log, tell.Say)
		if err != nil {
			return err
		}
		defer done()
		d, err := doc.diagnose(stop.Ctx, with, fresh)
		if stop.Interrupted() {
			return cli.Exit{Code: cli.CodeInterrupted}
		}
		if err != nil {
			return err
		}
		if err := d.print(std, f.Value); err != nil {
			return err
		}
		if d.Provider == "" {
			return cli.Exit{Code: cli.CodeMissing}
		}
		return nil
	}
	return c
}

// diagnose inspects the machine and tries the faults with every available provider.
func (d *doctor) diagnose(ctx context.Context, with []string, fresh bool) (Diagnosis, error) {
	var out Diagnosis
	images, err := imageKeys()
	if err != nil {
		return out, err
	}
	out.Machine = cluster.Probe(ctx, mechanisms.All(), images...)
	if p, reason, err := nodes.Choose(ctx, nodes.Providers[0]); err != nil {
		out.Reason = err.Error()
	} else {
		out.Provider, out.Reason = p.Name(), reason
	}
	for _, name := range with {
		p, _, err := nodes.Choose(ctx, name)
		if err != nil {
			continue // the diagnosis of the machine says why
		}
		if s, ok := p.(cluster.Surveyor); ok {
			if out.Hosts, err = s.Survey(ctx, Prober); err != nil {
				return out, err
			}
		}
		cells, err := d.matrix(ctx, p, fresh)
		if err != nil {
			return out, err
		}
		out.Faults = append(out.Faults, cells...)
	}
	return out, nil
}

// Prober returns a node that listens and does nothing else.
func Prober(name string) node.Spec {
	const port = "probe"
	return node.Spec{
		Name: name, Role: node.Resource, Image: node.SelfProgram, Stdio: true,
		Ports:   []node.Port{{Name: port, Number: 7070}},
		Command: func(p node.Place) []string { return node.Own("register", "--listen", p.Address(name, port)) },
	}
}

// HostsText returns a table of the hosts of a swarm, and one of the routes between them.
func HostsText(hosts []cluster.HostSeen) string {
	if len(hosts) == 0 {
		return ""
	}
	table := figure.Table{{"host", "engine", "kernel", "processors", "clock", "agent", "cannot"}}
	links := figure.Table{{"from", "to", "round trip, median", "95 %", "arrived", "clock error of the pair"}}
	for _, h := range hosts {
		processors, clock := "", ""
		if h.Processors > 0 {
			processors = strconv.Itoa(h.Processors)
		}
		if c := h.Clock; c != nil {
			clock = "ahead by " + (-c.Offset).String() + ", to within " + c.Error.String()
			if *c == (cluster.ClockSeen{}) {
				clock = "the supervisor's own"
			}
		}
		table = append(table, []string{
			h.Name, dash(h.Engine), dash(h.Kernel), dash(processors), dash(clock),
			dash(h.Agent), dash(cannot(h)),
		})
		for _, l := range h.Links {
			arrived := fmt.Sprintf("%d of %d", l.Arrived, l.Sent)
			links = append(links, []string{
				h.Name, l.To, l.RoundTrip.Mid.String(), l.RoundTrip.High.String(), arrived,
				l.ClockError.String(),
			})
		}
	}
	out := "\n" + table.Text()
	if len(links) > 1 {
		out += "\n" + links.Text()
	}
	if len(hosts) > 1 {
		out += "\nencryption of the network between the hosts: " + cluster.OverlayInClear + "\n"
	}
	return out + "\n"
}

// cannot lists what a host cannot do, with the reasons.
func cannot(h cluster.HostSeen) string {
	if h.Lacks != "" {
		return "have nodes (" + cli.OneLine(h.Lacks) + ")"
	}
	var out []string
	for _, c := range slices.Sorted(maps.Keys(h.Cannot)) {
		out = append(out, c+" ("+cli.OneLine(strings.TrimPrefix(h.Cannot[c], c+" is unavailable: "))+")")
	}
	return strings.Join(out, "; ")
}

// dash returns "-" for an empty text.
func dash(text string) string { return cmp.Or(text, "-") }

// imageKeys returns the keys of the images that the backends' nodes need in their default versions.
func imageKeys() ([]string, error) {
	var keys []string
	for _, name := range compose.Backends() {
		p, err := compose.New(name)
		if err != nil {
			return nil, err
		}
		for _, s := range p.Specs {
			if s.Image != node.SelfProgram && !slices.Contains(keys, s.Image) {
				keys = append(keys, s.Image)
			}
		}
	}
	return keys, nil
}

func (d Diagnosis) print(std cli.Streams, format string) error {
	if format == "json" {
		return cli.WriteJSON(std.Out, d)
	}
	var machine figure.Table
	for _, m := range d.Machine {
		answer := No
		if m.Available {
			answer = Yes
		}
		machine = append(machine, []string{m.Name, answer, m.Reason})
	}
	if _, err := fmt.Fprint(std.Out, machine.Text()+HostsText(d.Hosts)+matrixText(d.Faults)); err != nil {
		return err
	}
	if d.Provider == "" {
		_, err := fmt.Fprintf(std.Out, "\nno provider: %s\n", d.Reason)
		return err
	}
	_, err := fmt.Fprintf(std.Out, "\n--provider auto takes %s: %s\n", d.Provider, d.Reason)
	return err
}
