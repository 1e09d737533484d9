package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func slotsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "slots [--gpus N]", Short: "How many slots of N GPUs each NVLink domain has now", Args: noArgs,
		Example: "  spillway slots --gpus 64",
	}
	c := asking(cmd)
	gpus := cmd.Flags().Uint32("gpus", 64, "size of a slot in GPUs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer read.Slots
		if err := c.get(cmd.Context(), "/v1/slots", url.Values{"gpus": {strconv.Itoa(int(*gpus))}}, &answer); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if c.output == "json" {
			return printJSON(w, answer)
		}
		fmt.Fprintf(w, "%d slots of %d GPUs (%s)\n\n", answer.Total, answer.GPUs, printable(answer.Basis))
		t := table{head: []string{"CLUSTER", "DOMAIN", "SLOTS", "FREE", "STRANDED", "USABLE"}}
		for _, d := range answer.Domains {
			t.add(d.Cluster, d.Name(), fmt.Sprint(d.Slots), fmt.Sprint(d.GPUsFree), fmt.Sprint(d.Stranded), fmt.Sprint(d.Usable))
		}
		t.print(w)
		footer(w, answer.Freshness)
		return nil
	}
	return cmd
}
