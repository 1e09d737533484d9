package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/spillway-io/spillway/query/read"
)

// mailWidth is what every mail reader shows without wrapping, signs of quoting included.
const mailWidth = 72

// mailText is an explanation as plain text of at most mailWidth a line, with the address of the job's page.
func mailText(e read.Explanation, base string) string {
	var b strings.Builder
	for _, line := range e.Lines {
		b.WriteString(wrap(line, mailWidth))
		b.WriteString("\n\n")
	}
	page := strings.TrimSuffix(base, "/") + "/jobs/" + url.PathEscape(e.JobID) + "?" +
		url.Values{"cluster": {e.Cluster}, "attempt": {fmt.Sprint(e.Attempt)}}.Encode()
	b.WriteString("The racks it ran in:\n" + page)
	if !e.Freshness.Complete {
		b.WriteString("\n\n" + wrap("Some facts were missing when this was written: "+strings.Join(e.Freshness.Gaps, "; ")+".", mailWidth))
	}
	return b.String()
}

// wrap breaks a line at spaces; a longer word, such as an address, stays whole.
func wrap(text string, width int) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(printable(text)) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+n > width:
			b.WriteByte('\n')
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}

// printable drops what a terminal, a log or a shell could take for more than text: names come from whoever submits.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
}

// printableLines is lines, each printable, with something between them.
func printableLines(lines []string, between string) string {
	var out []string
	for _, line := range lines {
		out = append(out, printable(line))
	}
	return strings.Join(out, between)
}

// slurmJob is how Slurm writes a job: an id, of an array's task, or of a heterogeneous job's component.
var slurmJob = regexp.MustCompile(`^[0-9]{1,10}([_+][0-9]{1,10})?$`)

// slurmdbd keeps comments in a text column, and sacct prints them whole: a sentence or two is what people read there.
const maxComment = 480

// commentMark is what our part of a comment begins with.
const commentMark = "spillway: "

// adminComment is the shell command that keeps an explanation with the job. What others wrote into its AdminComment stays
// in front (scontrol shows it with a blank behind); an explanation from before, which begins with our mark and is the last,
// makes room. Whatever the job is called, or the comment holds, to the shell it is plain words.
func adminComment(e read.Explanation) (string, error) {
	if !slurmJob.MatchString(e.JobID) {
		return "", usageError("job %q is not one of Slurm's: --admin-comment needs an id such as 4711, 4711_3 or 4711+1", e.JobID)
	}
	text := commentMark + printable(e.Lines[0])
	if e.Advice != nil {
		text += " Next time: " + printable(*e.Advice)
	}
	text = shorten(strings.ReplaceAll(text, "`", "'"), maxComment)
	return "old=$(scontrol show job " + e.JobID + `) && old=$(printf '%s\n' "$old" | sed -n '/^ *AdminComment=/{s///;s/ *$//;p;q;}') && ` +
		"old=${old%%" + strings.TrimSpace(commentMark) + ` *} && scontrol update JobId=` + e.JobID + ` AdminComment="${old:+${old% | } | }"` + shellQuoted(text), nil
}

// shellQuoted is one word to any POSIX shell: inside single quotes nothing means anything but the quote itself.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// shorten cuts at a rune and shows that it did.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[:most-len("...")]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "..."
}

// maxEventMessage is what the Kubernetes API takes as the message of an Event.
const maxEventMessage = 1024

// kubeName is a DNS subdomain, as names of namespaces and objects are.
var kubeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// kubeEvent is an Event on the object that a job is, as YAML. The job's id must be namespace/name.
func kubeEvent(e read.Explanation, kind string, now time.Time) (string, error) {
	namespace, name, ok := strings.Cut(e.JobID, "/")
	if !ok || !kubeName.MatchString(namespace) || !kubeName.MatchString(name) {
		return "", usageError("job %q is not one of Kubernetes': --k8s-event needs namespace/name", e.JobID)
	}
	cut := strings.LastIndex(kind, "/")
	if cut <= 0 || cut == len(kind)-1 {
		return "", usageError("k8s-kind %q: write group/version/Kind, for example batch/v1/Job or kueue.x-k8s.io/v1beta1/Workload", kind)
	}
	reason, level := "PlacementJudged", "Normal"
	if e.Outcome == nil {
		reason = "PlacementNotJudged"
	} else {
		switch *e.Outcome {
		case "spill":
			reason, level = "NVLinkSpill", "Warning"
		case "unknown":
			reason = "PlacementUnknown"
		}
	}
	message := strings.Join(e.Lines, " ")
	at := now.UTC().Format(time.RFC3339)
	// The same verdict told again has the same name: it is then refused, and not shown twice.
	hash := sha256.Sum256([]byte(e.Cluster + "\x00" + e.JobID + "\x00" + message))
	out, err := yaml.Marshal(yaml.MapSlice{
		{Key: "apiVersion", Value: "v1"},
		{Key: "kind", Value: "Event"},
		{Key: "metadata", Value: yaml.MapSlice{
			{Key: "name", Value: shorten63(name) + ".spillway-" + hex.EncodeToString(hash[:6])},
			{Key: "namespace", Value: namespace},
		}},
		{Key: "involvedObject", Value: yaml.MapSlice{
			{Key: "apiVersion", Value: kind[:cut]},
			{Key: "kind", Value: kind[cut+1:]},
			{Key: "namespace", Value: namespace},
			{Key: "name", Value: name},
		}},
		{Key: "type", Value: level},
		{Key: "reason", Value: reason},
		{Key: "message", Value: shorten(printable(message), maxEventMessage)},
		{Key: "source", Value: yaml.MapSlice{{Key: "component", Value: "spillway"}}},
		{Key: "firstTimestamp", Value: at},
		{Key: "lastTimestamp", Value: at},
		{Key: "count", Value: 1},
	})
	if err != nil {
		return "", fmt.Errorf("write the event: %w", err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// shorten63 leaves room for what follows in a name of at most 253 characters.
func shorten63(name string) string {
	return strings.TrimRight(name[:min(len(name), 63)], "-.")
}
