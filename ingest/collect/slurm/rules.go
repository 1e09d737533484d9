package slurm

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

// job is what rules look at.
type job struct{ user, account, qos, partition, name string }

func (m *Match) empty() bool {
	return len(m.Users)+len(m.Accounts)+len(m.QOS)+len(m.Partitions)+len(m.Names) == 0
}

func (m *Match) matches(j job) bool {
	return anyMatch(m.Users, j.user) && anyMatch(m.Accounts, j.account) && anyMatch(m.QOS, j.qos) &&
		anyPartition(m.Partitions, j.partition) && anyMatch(m.Names, j.name)
}

// class is the service class of a job, "" for none.
func (c *Config) class(j job) string {
	for i := range c.ServiceClasses {
		if c.ServiceClasses[i].matches(j) {
			return c.ServiceClasses[i].Class
		}
	}
	return ""
}

func (c *Config) probe(j job) bool {
	for i := range c.Probes {
		if c.Probes[i].matches(j) {
			return true
		}
	}
	return false
}

// preemptible says whether a job may be ended for one of higher priority; nil where nobody has said which may.
func (c *Config) preemptible(j job) *bool {
	if len(c.Preemptible) == 0 {
		return nil
	}
	for i := range c.Preemptible {
		if c.Preemptible[i].matches(j) {
			return new(true)
		}
	}
	return new(false)
}

func anyMatch(patterns []string, s string) bool {
	for _, p := range patterns {
		if glob(p, s) {
			return true
		}
	}
	return len(patterns) == 0
}

// anyPartition takes a job that pends in several partitions for a job of each of them.
func anyPartition(patterns []string, partitions string) bool {
	for p := range strings.SplitSeq(partitions, ",") {
		if anyMatch(patterns, p) {
			return true
		}
	}
	return false
}

// glob reports whether the whole of s matches. On a mismatch it goes back to the last star only, so that no pattern takes
// more than len(p)*len(s) steps.
func glob(p, s string) bool {
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
