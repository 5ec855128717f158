package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/scenarios"
)

func showCommand(std streams) *cobra.Command {
	c := &cobra.Command{
		Use:               "show SCENARIO-NAME-OR-FILE...",
		Short:             "Print scenarios as YAML, twins and --set applied",
		Example:           "  lockquake show redlock-holder-pause > mine.yaml\n  lockquake show --schema > scenario.schema.json",
		ValidArgsFunction: completeScenario,
	}
	schema := c.Flags().Bool("schema", false, "print the JSON Schema of scenarios instead, by which editors complete them (docs/scenarios.md)")
	set := c.Flags().StringArray("set", nil, "replace a key of the scenario, such as workload.resource.guard=fence; may be repeated")
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case *schema && len(args) > 0:
			return usagef("show: --schema is of all scenarios; name none beside it")
		case !*schema && len(args) == 0:
			return usagef("show: no scenario is named; `lockquake list scenarios` lists them")
		}
		return nil
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *schema {
			text, err := scenarios.Schema(vocabulary(catalog()))
			if err == nil {
				_, err = std.out.Write(text)
			}
			return err
		}
		var list []scenarios.Scenario
		for _, name := range args {
			some, err := scenarios.Load(name)
			if err != nil {
				return err
			}
			list = append(list, some...)
		}
		for i, s := range list {
			s, err := s.With(*set)
			if err != nil {
				return err
			}
			if i > 0 {
				fmt.Fprintln(std.out, "---")
			}
			if _, err := std.out.Write(s.Text); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}
