package main

import (
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
)

// delivery says whether one fault can be delivered to one role by one provider.
type delivery struct {
	Provider  string `json:"provider"`
	Fault     string `json:"fault"`
	Role      string `json:"role"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"` // why not
}

// diagnosis is what doctor found.
type diagnosis struct {
	Provider string                `json:"provider"` // what auto takes
	Reason   string                `json:"reason"`
	Machine  []cluster.ProbeResult `json:"machine"`
	Faults   []delivery            `json:"faults"`
}

func doctorCommand(std streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what can be delivered on this machine, and why the rest cannot",
		Long: "Doctor tries what runs need: an engine and what may be done through it, root, namespaces, ptrace, programs. It leaves\n" +
			"nothing behind. The exit code is 3 when no provider can be had at all.",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		var d diagnosis
		images, err := imageKeys()
		if err != nil {
			return err
		}
		d.Machine = cluster.Probe(c.Context(), images...)
		for _, name := range providers {
			p, reason, err := chooseProvider(c.Context(), name)
			switch {
			case name == "auto" && err != nil:
				d.Reason = err.Error()
			case name == "auto":
				d.Provider, d.Reason = p.Name(), reason
			case err == nil:
				d.Faults = append(d.Faults, deliveries(p)...)
			}
		}
		if err := d.print(std, f.value); err != nil {
			return err
		}
		if d.Provider == "" {
			return exit{code: codeMissing}
		}
		return nil
	}
	return c
}

// imageKeys names the images that the backends' nodes need, as long as a scenario asks for no other version.
func imageKeys() ([]string, error) {
	var keys []string
	for _, name := range servedBackends() {
		p, err := newByHand(name)
		if err != nil {
			return nil, err
		}
		for _, s := range p.specs {
			if s.Image != cluster.SelfProgram && !slices.Contains(keys, s.Image) {
				keys = append(keys, s.Image)
			}
		}
	}
	return keys, nil
}

// deliveries asks a provider for what each fault needs of each role.
func deliveries(p cluster.Provider) []delivery {
	var out []delivery
	for _, kind := range catalog().Faults {
		for _, role := range []cluster.Role{cluster.Server, cluster.Client, cluster.Resource} {
			d := delivery{Provider: p.Name(), Fault: kind.Name, Role: string(role), Available: true}
			if err := firstRefusal(p, kind, role); err != nil {
				d.Available, d.Reason = false, err.Error()
			}
			out = append(out, d)
		}
	}
	return out
}

func firstRefusal(p cluster.Provider, kind chaos.Kind, role cluster.Role) error {
	for _, need := range kind.Needs {
		if err := p.Offers(need, role); err != nil {
			return err
		}
	}
	return nil
}

func (d diagnosis) print(std streams, format string) error {
	if format == "json" {
		return writeJSON(std.out, d)
	}
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	for _, m := range d.Machine {
		fmt.Fprintf(w, "%s\t%s\t%s\n", m.Name, yes(m.Available), m.Reason)
	}
	fmt.Fprintln(w)
	for _, x := range d.Faults {
		fmt.Fprintf(w, "%s: %s on a %s\t%s\t%s\n", x.Provider, x.Fault, x.Role, yes(x.Available), x.Reason)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if d.Provider == "" {
		_, err := fmt.Fprintf(std.out, "\nno provider: %s\n", d.Reason)
		return err
	}
	_, err := fmt.Fprintf(std.out, "\n--provider auto takes %s: %s\n", d.Provider, d.Reason)
	return err
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}
