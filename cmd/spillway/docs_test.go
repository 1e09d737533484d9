package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/spillway-io/spillway/internal/testenv"
)

// block is one fenced block of a page whose language is sh. need says what it needs that a test has not; "background"
// is a program that runs while the rest of the page does.
type block struct {
	line       int
	need, text string
}

// lacking are the needs that keep a block from being run. A block that is not run is still read by the shell.
var lacking = map[string]bool{"containers": true, "kubernetes": true, "slurm": true, "kafka": true, "root": true, "checkout": true}

func blocksOf(t *testing.T, path string) (out []block) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var open *block
	line := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line++
		text := lines.Text()
		switch fence, isFence := strings.CutPrefix(text, "```"); {
		case isFence && open != nil:
			out, open = append(out, *open), nil
		case isFence && (fence == "sh" || strings.HasPrefix(fence, "sh ")):
			open = &block{line: line, need: strings.TrimSpace(strings.TrimPrefix(fence, "sh"))}
		case open != nil:
			open.text += text + "\n"
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block has no end", path, open.line)
	}
	return out
}

// TestEveryCommandOfTheDocs runs the sh blocks of deploy/docs and the README, page by page in order, in a copy of what a reader has: the tree, and the
// binary built from it.
func TestEveryCommandOfTheDocs(t *testing.T) {
	pages, err := filepath.Glob(top + "/deploy/docs/*.md")
	if err != nil || len(pages) < 6 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	bin := filepath.Join(t.TempDir(), "spillway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	for _, page := range append(pages, top+"/README.md") {
		blocks := blocksOf(t, page)
		seen += len(blocks)
		t.Run(filepath.Base(page), func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"deploy", "schemas", "dashboards"} {
				target, err := filepath.Abs(filepath.Join(top, name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(bin, filepath.Join(dir, "bin/spillway")); err != nil {
				t.Fatal(err)
			}
			api := freeAddress(t)
			for _, b := range blocks {
				// Another port than a reader's, whose own service may be running.
				text := strings.ReplaceAll(b.text, "127.0.0.1:8470", api)
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				args := []string{"-e", "-c", text}
				if lacking[b.need] {
					args = []string{"-n", "-c", text}
				}
				cmd := exec.CommandContext(ctx, "bash", args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "SPILLWAY_URL=http://"+api)
				switch {
				case b.need == "background":
					cmd.Env = append(cmd.Env, "SPILLWAY_API_LISTEN="+api)
					background(t, cmd, api, filepath.Join(dir, "bin/spillway"))
				case b.need == "" || lacking[b.need]:
					for _, program := range []string{"promtool", "amtool"} {
						if b.need == "" && strings.Contains(text, program+" ") {
							testenv.Binary(t, program)
						}
					}
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("%s:%d: %v\n%s\n%s", page, b.line, err, text, out)
					}
				default:
					t.Errorf("%s:%d: nobody knows the need %q", page, b.line, b.need)
				}
			}
		})
	}
	if seen < 20 {
		t.Errorf("saw %d blocks: the pages' layout changed", seen)
	}
}

// background starts a block that goes on until the page is over, and waits until the demo has something to show.
func background(t *testing.T, cmd *exec.Cmd, api, bin string) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel, cmd.WaitDelay = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }, 10*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The whole group: the shell's child is the program.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		_ = cmd.Wait()
		http.DefaultClient.CloseIdleConnections()
		if t.Failed() {
			t.Logf("the background program said:\n%s", log.String())
		}
	})
	testenv.Eventually(t, time.Minute, func() error {
		out, err := exec.CommandContext(t.Context(), bin, "spills", "--running", "--limit", "1", "--api", "http://"+api, "-o", "json").Output()
		if err != nil || !bytes.Contains(out, []byte("job_id")) {
			return fmt.Errorf("no spill yet: %w", errors.Join(err, errors.New(string(out))))
		}
		out, err = exec.CommandContext(t.Context(), bin, "domains", "--api", "http://"+api, "-o", "json").Output()
		if err != nil || !bytes.Contains(out, []byte("label")) {
			return fmt.Errorf("no domain yet: %w", errors.Join(err, errors.New(string(out))))
		}
		return nil
	})
}

// pagesOfTree are the pages of the whole tree.
func pagesOfTree(t *testing.T) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != top && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "var", "testdata", "node_modules"}, d.Name())) {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil || len(pages) < 12 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	return pages
}

// anchorsOf are the anchors that the headings of a page have on the web.
func anchorsOf(text string) (out []string) {
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if heading := strings.TrimLeft(line, "#"); !fenced && heading != line && strings.HasPrefix(heading, " ") {
			kept := strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
					return unicode.ToLower(r)
				}
				return -1
			}, strings.TrimSpace(heading))
			out = append(out, kept)
		}
	}
	return out
}

// TestLinksOfTheDocs follows every link between files of the tree, to the heading that it names.
func TestLinksOfTheDocs(t *testing.T) {
	links, anchors := 0, 0
	for _, page := range pagesOfTree(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			links++
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if anchor == "" {
				continue
			}
			anchors++
			content, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if headings := anchorsOf(string(content)); !slices.Contains(headings, anchor) {
				t.Errorf("%s links to %s, whose headings are %v", page, m[1], headings)
			}
		}
	}
	if links < 60 || anchors < 4 {
		t.Errorf("saw %d links, %d of them to headings", links, anchors)
	}
}

// commandsOf are the command lines of this program on a page: those that code in the text begins with, and lines of blocks.
func commandsOf(text string) (out [][]string) {
	const program = `(?:bin/|/usr/local/bin/)?spillway `
	outside, fenced := "", false
	var lines []string
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			lines = append(lines, regexp.MustCompile(`^\s*`+program+`(.*)`).FindAllString(line, 1)...)
		default:
			outside += line
		}
	}
	lines = append(lines, regexp.MustCompile("`"+program+"[^`]*`").FindAllString(outside, -1)...)
	for _, line := range lines {
		var args []string
		for _, word := range strings.Fields(strings.Trim(line, "`"))[1:] {
			if strings.ContainsAny(word[:1], "#|<>&;") || word == "2>" {
				break
			}
			if word == "N" {
				word = "1"
			}
			args = append(args, strings.Trim(word, `"'`))
		}
		out = append(out, args)
	}
	return out
}

// TestEveryCommandThatAPageNamesIsOne holds commands, their flags and how many words they take against the program. The name
// of a command alone is talk about it.
func TestEveryCommandThatAPageNamesIsOne(t *testing.T) {
	seen := 0
	for _, page := range pagesOfTree(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range commandsOf(string(text)) {
			seen++
			root := newRoot()
			root.InitDefaultHelpCmd()
			root.InitDefaultVersionFlag()
			cmd, rest, err := root.Find(args)
			cmd.InitDefaultHelpFlag()
			if err == nil && !cmd.HasParent() && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				err = errors.New("there is no such command")
			}
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && len(rest) > 0 && !cmd.Flags().Changed("help") {
				err = errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags())
			}
			if err != nil {
				t.Errorf("%s: `spillway %s`: %v", page, strings.Join(args, " "), err)
			}
		}
	}
	if seen < 60 {
		t.Errorf("saw %d commands: the pages' layout changed", seen)
	}
}

// TestQuestionsAreAnsweredWhereTheTableSays holds the table of deploy/docs/questions.md against the boards, the page's
// addresses and the API.
func TestQuestionsAreAnsweredWhereTheTableSays(t *testing.T) {
	text, err := os.ReadFile(top + "/deploy/docs/questions.md")
	if err != nil {
		t.Fatal(err)
	}
	boards := map[string]string{
		"Spills": "spills", "Job": "job", "Topology health": "topology", "Domain": "domain", "Pipeline": "pipeline", "Capacity": "capacity", "Advice outcomes": "advice",
	}
	routes, err := os.ReadFile(top + "/query/api/page.go")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile(top + "/schemas/api/spillway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || strings.HasPrefix(cells[1], "-") || strings.TrimSpace(cells[2]) == "question" {
			continue
		}
		rows++
		page, panel, command := cells[3], strings.TrimSpace(cells[4]), cells[5]
		if name, title, ok := strings.Cut(panel, ": "); ok {
			board, err := os.ReadFile(top + "/dashboards/spillway-" + boards[name] + ".json")
			if err != nil || !strings.Contains(string(board), `"title": "`+title+`"`) {
				t.Errorf("%q: there is no panel %q of the board %q", cells[2], title, name)
			}
		}
		if strings.TrimSpace(page) == "-" && panel == "-" {
			t.Errorf("%q has no place", cells[2])
		}
		pictures := regexp.MustCompile(`\]\(([^)]+\.png)\)`).FindAllStringSubmatch(page, -1)
		if len(pictures) == 0 {
			t.Errorf("%q has no picture", cells[2])
		}
		for _, m := range pictures {
			if info, err := os.Stat(filepath.Join(top, "deploy/docs", m[1])); err != nil || info.Size() > 100<<10 {
				t.Errorf("%q: the picture %s is not there, or above 100 KB: %v", cells[2], m[1], err)
			}
		}
		for _, m := range regexp.MustCompile(`/(spills|topology|domains|status|jobs|advice|slots|report|exceptions)\b`).FindAllStringSubmatch(page, -1) {
			if !strings.Contains(string(routes), `"/`+m[1]) {
				t.Errorf("%q: the page has no address /%s", cells[2], m[1])
			}
		}
		for _, m := range regexp.MustCompile("spillway ([a-z]+)").FindAllStringSubmatch(command, -1) {
			if cmd, _, err := newRoot().Find([]string{m[1]}); err != nil || cmd.Name() != m[1] {
				t.Errorf("%q: there is no command `spillway %s`", cells[2], m[1])
			}
		}
		for _, m := range regexp.MustCompile(`/v1/[a-z/{}]+`).FindAllString(command, -1) {
			if !strings.Contains(string(spec), "\n  "+m+":\n") {
				t.Errorf("%q: the API has no %s", cells[2], m)
			}
		}
	}
	if rows < 20 {
		t.Errorf("saw %d questions: the table's layout changed", rows)
	}
}
