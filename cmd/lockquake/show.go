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
		Example:           "  lockquake show redlock-holder-pause > mine.yaml",
		ValidArgsFunction: completeScenario,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("show: no scenario is named; `lockquake list scenarios` lists them")
			}
			return nil
		},
	}
	set := c.Flags().StringArray("set", nil, "replace a key of the scenario, such as workload.resource.guard=fence; may be repeated")
	c.RunE = func(_ *cobra.Command, args []string) error {
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
