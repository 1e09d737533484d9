package testenv

import (
	_ "embed"
	"encoding/csv"
	"strconv"
	"strings"
	"testing"
)

//go:embed slot_rule.csv
var slotRule string

// SlotCase is how many slots of Size GPUs a domain has of which only totals are known; Slots < 0 = nobody can say.
type SlotCase struct {
	Says                                string
	Nodes, NodesFree, GPUs, Size, Slots int
}

// SlotCases are the cases of slot_rule.csv. The rule stands in Go and in SQL, in several stages that do not import each
// other; each tests its own by them.
func SlotCases(t testing.TB) (out []SlotCase) {
	t.Helper()
	lines := csv.NewReader(strings.NewReader(slotRule))
	lines.Comment = '#'
	all, err := lines.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range all[1:] {
		c := SlotCase{Says: line[0]}
		for i, into := range []*int{&c.Nodes, &c.NodesFree, &c.GPUs, &c.Size, &c.Slots} {
			if *into, err = strconv.Atoi(line[i+1]); line[i+1] == "unknown" {
				*into = -1
			} else if err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, c)
	}
	return out
}

// Each gives the GPUs of each node of the domain, the wholly free ones first: as alike as the totals allow.
func (c SlotCase) Each() []int {
	each, left := make([]int, c.Nodes), c.GPUs
	for i := range each {
		each[i] = min(left, (c.GPUs+c.Nodes-1)/c.Nodes)
		left -= each[i]
	}
	return each
}
