package collect

import "strings"

// Match is a rule on a job. Every list that is not empty must have a pattern that matches; * stands for any text and ? for
// one character.
type Match struct {
	Users      []string `yaml:"users"`
	Accounts   []string `yaml:"accounts"`
	QOS        []string `yaml:"qos"`
	Partitions []string `yaml:"partitions"`
	Names      []string `yaml:"names"`
}

// ClassRule gives a service class to the jobs it matches; a rule without lists matches every job.
type ClassRule struct {
	Class string `yaml:"class"`
	Match `yaml:",inline"`
}

// Subject is what rules look at, in the words of the contract's placement: Partition is its queue, and may be several with
// commas between them.
type Subject struct{ User, Account, QOS, Partition, Name string }

// Empty says that the rule has no list, and so matches every job.
func (m *Match) Empty() bool {
	return len(m.Users)+len(m.Accounts)+len(m.QOS)+len(m.Partitions)+len(m.Names) == 0
}

// Matches says whether the rule takes the job.
func (m *Match) Matches(j Subject) bool {
	return AnyMatch(m.Users, j.User) && AnyMatch(m.Accounts, j.Account) && AnyMatch(m.QOS, j.QOS) &&
		anyPartition(m.Partitions, j.Partition) && AnyMatch(m.Names, j.Name)
}

// ClassOf is the service class of a job by the first rule that matches, "" for none.
func ClassOf(rules []ClassRule, j Subject) string {
	for i := range rules {
		if rules[i].Matches(j) {
			return rules[i].Class
		}
	}
	return ""
}

// PreemptibleBy says whether a job may be ended for one of higher priority, which those are that a rule matches; nil where
// nobody has said which may.
func PreemptibleBy(rules []Match, j Subject) *bool {
	if len(rules) == 0 {
		return nil
	}
	for i := range rules {
		if rules[i].Matches(j) {
			return new(true)
		}
	}
	return new(false)
}

// AnyMatch says whether one of the patterns matches the text; no patterns match any.
func AnyMatch(patterns []string, s string) bool {
	for _, p := range patterns {
		if Glob(p, s) {
			return true
		}
	}
	return len(patterns) == 0
}

// anyPartition takes a job that pends in several partitions for a job of each of them.
func anyPartition(patterns []string, partitions string) bool {
	for p := range strings.SplitSeq(partitions, ",") {
		if AnyMatch(patterns, p) {
			return true
		}
	}
	return false
}

// Glob reports whether the whole of s matches. On a mismatch it goes back to the last star only, so that no pattern takes
// more than len(p)*len(s) steps.
func Glob(p, s string) bool {
	star, mark := -1, 0
	i, k := 0, 0
	for k < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, k
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[k]):
			i++
			k++
		case star >= 0:
			mark++
			i, k = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(p[i:], "*") == ""
}
