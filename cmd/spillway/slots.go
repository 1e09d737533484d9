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
	model := cmd.Flags().String("gpu-model", "", "only domains of this GPU model")
	tenant := cmd.Flags().String("tenant", "", "account or reservation: nodes reserved for it count, too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer read.Slots
		if err := c.get(cmd.Context(), "/v1/slots", url.Values{"gpus": {strconv.Itoa(int(*gpus))}, "gpu_model": {*model}, "tenant": {*tenant}}, &answer); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if c.output == "json" {
			return printJSON(w, answer)
		}
		fmt.Fprintf(w, "%d slots of %d GPUs (%s)\n\n", answer.Total, answer.GPUs, printable(answer.Basis))
		t := table{head: []string{"CLUSTER", "DOMAIN", "MODEL", "SLOTS", "FREE", "STRANDED", "USABLE"}}
		for _, d := range answer.Domains {
			model := unknown
			if d.Model != nil {
				model = *d.Model
			}
			t.add(d.Cluster, d.Name(), model, fmt.Sprint(d.Slots), fmt.Sprint(d.GPUsFree), fmt.Sprint(d.Stranded), fmt.Sprint(d.Usable))
		}
		t.print(w)
		footer(w, answer.Freshness)
		return nil
	}
	return cmd
}
