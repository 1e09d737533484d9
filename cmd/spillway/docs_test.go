package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestEveryCommandOfTheDocs runs the sh blocks of every page, in order, in a copy of what a reader has: the tree, and the
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

// TestLinksOfTheDocs follows every link between files of the tree.
func TestLinksOfTheDocs(t *testing.T) {
	pages, err := filepath.Glob(top + "/deploy/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, page := range append(pages, top+"/README.md", top+"/DESIGN.md", top+"/BENCHMARKS.md", top+"/deploy/runbook.md", top+"/deploy/slurm/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			path, anchor, _ := strings.Cut(strings.ReplaceAll(m[1], "\n", ""), "#")
			if strings.Contains(path, "://") {
				continue
			}
			links++
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			content, err := os.ReadFile(target)
			if info, serr := os.Stat(target); serr != nil {
				t.Errorf("%s links to %s: %v", page, m[1], serr)
				continue
			} else if info.IsDir() {
				continue
			}
			if err != nil {
				t.Error(err)
			}
			if anchor != "" && !strings.Contains(strings.ToLower(string(content)), "\n#") {
				t.Errorf("%s links to %s, which has no headings", page, m[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("saw %d links", links)
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
