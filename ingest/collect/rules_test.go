package collect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRules(t *testing.T) {
	classes := []ClassRule{
		{Class: "probe", Match: Match{Names: []string{"nccl-test*", "burn-in"}}},
		{Class: "big", Match: Match{Accounts: []string{"ml-*"}, Partitions: []string{"gb?00"}}},
		{Class: "rest"},
	}
	rules := []Match{{Users: []string{"root"}, QOS: []string{"scavenger"}}}
	for name, c := range map[string]struct {
		job     Subject
		class   string
		matches bool
	}{
		"the first that matches":     {Subject{Name: "nccl-test-7", Account: "ml-pre", Partition: "gb200"}, "probe", false},
		"all lists must match":       {Subject{Account: "ml-pre", Partition: "h100"}, "rest", false},
		"one of the partitions":      {Subject{Account: "ml-pre", Partition: "h100,gb300"}, "big", false},
		"both lists of a rule match": {Subject{User: "root", QOS: "scavenger"}, "rest", true},
		"one list of two matches":    {Subject{User: "root", QOS: "normal"}, "rest", false},
	} {
		t.Run(name, func(t *testing.T) {
			if class := ClassOf(classes, c.job); class != c.class {
				t.Errorf("class %q", class)
			}
			if diff := cmp.Diff(&c.matches, PreemptibleBy(rules, c.job)); diff != "" {
				t.Errorf("preemptible (-want +got):\n%s", diff)
			}
		})
	}
	if got := PreemptibleBy(nil, Subject{}); got != nil {
		t.Errorf("without rules a job is preemptible: %v", *got)
	}
	if got := ClassOf(nil, Subject{}); got != "" {
		t.Errorf("without rules a job has the class %q", got)
	}
	if !(&Match{}).Empty() || (&Match{QOS: []string{"*"}}).Empty() {
		t.Error("a rule is empty when it has no list")
	}
}

func TestGlob(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		"*": {"", "-"}, "a*": {"a", "ba"}, "*a": {"bca", "ab"}, "a*b*c": {"axxbxc", "axxc"}, "?": {"x", "xy"}, "": {"", "x"}, "a**b": {"ab", "a"},
		"[a]": {"[a]", "a"}, "*/x": {"a/b/x", "x"},
	} {
		if !Glob(pattern, c.yes) || c.no != "-" && Glob(pattern, c.no) {
			t.Errorf("pattern %q: %q %v, %q %v", pattern, c.yes, Glob(pattern, c.yes), c.no, Glob(pattern, c.no))
		}
	}
	if Glob(strings.Repeat("a*", 5000)+"b", strings.Repeat("a", 100000)) {
		t.Error("a pattern without its last letter matched")
	}
}
