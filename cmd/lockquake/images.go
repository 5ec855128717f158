package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/images"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
)

var imagesDoc = `Images makes the image of this program, and the node images that the container engine lacks or that were made
from other Dockerfiles. The program contains the Dockerfiles. If no registry answers, it makes the base image from
Debian's packages, as root.

Images of clients in other languages are made only on request:
lockquake images ` + strings.Join(imagestore.OnDemand, " ") + `.`

func imagesCommand(std cli.Streams) *cobra.Command {
	return &cobra.Command{
		Use:       "images [NAME...]",
		Short:     "Make the images of the nodes",
		Long:      imagesDoc,
		ValidArgs: images.Names(),
		Args: func(_ *cobra.Command, args []string) error {
			for _, name := range args {
				if !slices.Contains(images.Names(), name) {
					return cli.Usagef("images: there is no image %q; there are %s", name,
						strings.Join(images.Names(), ", "))
				}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch err := images.Build(c.Context(), std.Err, args...); {
			case errors.Is(err, images.ErrMissing):
				return cli.Exit{Code: cli.CodeMissing} // the reason was printed already
			case err != nil || len(args) > 0:
				return err
			}
			ref, err := cluster.SelfImage(c.Context())
			if err == nil {
				_, err = fmt.Fprintln(std.Out, ref)
			}
			return err
		},
	}
}
