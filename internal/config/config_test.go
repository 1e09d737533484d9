package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The settings of a shop, for tests: every kind of value.
type shop struct {
	Name     string            `yaml:"name"`
	Open     bool              `yaml:"open"`
	Closing  time.Duration     `yaml:"closing"`
	Address  netip.Addr        `yaml:"address"`
	Tags     []string          `yaml:"tags"`
	Sizes    []int             `yaml:"sizes"`
	Shelves  []shelf           `yaml:"shelves"`
	Prices   map[string]price  `yaml:"prices"`
	Owners   map[string]string `yaml:"owners"`
	Till     till              `yaml:"till"`
	Delivery *delivery         `yaml:"delivery"`
	Base     `yaml:",inline"`
	Hidden   string `yaml:"-"`
}

// Base is what every branch has.
type Base struct {
	Branch uint8 `yaml:"branch"`
}

type shelf struct {
	Label  string `yaml:"label"`
	Height int    `yaml:"height"`
}

// UnmarshalYAML gives shelves their usual height.
func (s *shelf) UnmarshalYAML(unmarshal func(any) error) error {
	type plain shelf
	p := plain{Height: 40}
	if err := unmarshal(&p); err != nil {
		return err
	}
	if p.Height > 300 {
		return errors.New("nobody reaches that high; give at most 300")
	}
	*s = shelf(p)
	return nil
}

type price float64

type till struct {
	Drawers      int    `yaml:"drawers"`
	PasswordFile string `yaml:"password_file"`
	Receipt      struct {
		Width  int     `yaml:"width"`
		Margin float64 `yaml:"margin"`
	} `yaml:"receipt"`
}

type delivery struct {
	Radius int `yaml:"radius"`
}

func (s *shop) Validate() error {
	if s.Branch == 13 {
		return errors.New("branch: 13 brings bad luck; take another number")
	}
	return nil
}

func defaults() shop {
	s := shop{Name: "corner", Closing: 8 * time.Hour, Tags: []string{"food"}, Prices: map[string]price{"tea": 2}}
	s.Till.Drawers, s.Till.Receipt.Width = 1, 80
	return s
}

// load reads a text over the defaults.
func load(t *testing.T, text string, env ...string) (shop, []string, error) {
	t.Helper()
	s := defaults()
	path := "none"
	if text != "" {
		path = filepath.Join(t.TempDir(), "shop.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var notes []string
	err := Load(strings.TrimPrefix(path, "none"), &s, WithEnv(env), WithNotes(func(n string) { notes = append(notes, strings.ReplaceAll(n, path, "shop.yml")) }))
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), path, "shop.yml"))
	}
	return s, notes, err
}

func diff(want, got any) string {
	return cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
}

func TestLoad(t *testing.T) {
	cases := map[string]struct {
		text string
		env  []string
		want func(*shop)
		note string
	}{
		"no file and no variables leave the defaults": {"", nil, func(*shop) {}, ""},
		"an empty file too":                           {"# nothing\n---\n", nil, func(*shop) {}, ""},
		"a key without a value keeps its default":     {"name:\ntags:\nprices:\ntill:\n  drawers:\n", nil, func(*shop) {}, ""},
		"values of every kind": {`
name: 007
open: TRUE
closing: 1h30m
address: 192.0.2.1
branch: 12
tags: [a, "b, c"]
sizes:
  - 1_000
  - -2
shelves:
  - label: top
  - {label: low, height: 20}
prices: {milk: 1.5}
owners: {1: ann, "2": bob}
delivery: {radius: 5}
till:
  receipt: {margin: .5}
`, nil, func(s *shop) {
			s.Name, s.Open, s.Closing, s.Address, s.Branch = "007", true, 90*time.Minute, netip.MustParseAddr("192.0.2.1"), 12
			s.Tags, s.Sizes = []string{"a", "b, c"}, []int{1000, -2}
			s.Shelves = []shelf{{"top", 40}, {"low", 20}}
			s.Prices, s.Owners = map[string]price{"tea": 2, "milk": 1.5}, map[string]string{"1": "ann", "2": "bob"}
			s.Delivery, s.Till.Receipt.Margin = &delivery{5}, .5
		}, ""},
		"a list replaces its default": {"tags: []\n", nil, func(s *shop) { s.Tags = []string{} }, ""},
		"variables override the file": {"name: file\ntags: [a]\n", []string{
			"SPILLWAY_NAME=a: b", "SPILLWAY_TAGS=x, y,", "SPILLWAY_SIZES=[1, 2]", "SPILLWAY_CLOSING=90m", "SPILLWAY_ADDRESS=::1",
			"SPILLWAY_TILL_DRAWERS=3", "SPILLWAY_DELIVERY_RADIUS=9", "SPILLWAY_OWNERS={a: b}", "SPILLWAY_SHELVES=[{label: l}]",
			"SPILLWAY_OPEN=true", "SPILLWAY_BRANCH=7", "HOME=/root",
		}, func(s *shop) {
			s.Name, s.Tags, s.Sizes, s.Closing, s.Address = "a: b", []string{"x", "y"}, []int{1, 2}, 90*time.Minute, netip.MustParseAddr("::1")
			s.Till.Drawers, s.Delivery, s.Owners, s.Shelves = 3, &delivery{9}, map[string]string{"a": "b"}, []shelf{{"l", 40}}
			s.Open, s.Branch = true, 7
		}, ""},
		"an empty variable is an empty value": {"name: file\n", []string{"SPILLWAY_NAME=", "SPILLWAY_TAGS="}, func(s *shop) { s.Name, s.Tags = "", []string{} }, ""},
		"a variable that is nearly a key":     {"", []string{"SPILLWAY_CLOSNG=1h"}, func(*shop) {}, "SPILLWAY_CLOSNG sets nothing; did you mean SPILLWAY_CLOSING?"},
		"a variable of something else":        {"", []string{"SPILLWAY_REQUIRE_SERVICES=1"}, func(*shop) {}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := defaults()
			c.want(&want)
			got, notes, err := load(t, c.text, c.env...)
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(want, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.note, strings.Join(notes, "\n")); d != "" {
				t.Errorf("notes: %s", d)
			}
		})
	}
}

// Each testdata/*.bad.yml begins with the message it must be refused with, one "# want:" a line, and may name a
// variable to set in "# env:".
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".bad.yml"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want, env []string
			for line := range strings.SplitSeq(string(text), "\n") {
				if message, ok := strings.CutPrefix(line, "# want: "); ok {
					want = append(want, message)
				}
				if variable, ok := strings.CutPrefix(line, "# env: "); ok {
					env = append(env, variable)
				}
			}
			s := defaults()
			err = Load(path, &s, WithEnv(env))
			if err == nil {
				t.Fatalf("it was read: %+v", s)
			}
			if d := cmp.Diff(strings.Join(want, "\n"), strings.ReplaceAll(err.Error(), path, "FILE")); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAFileThatIsNotThere(t *testing.T) {
	s := defaults()
	err := Load("testdata/gone.yml", &s)
	want := "read configuration: open testdata/gone.yml: no such file or directory; check the path, or leave it out to run with defaults"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	secret := struct {
		Token string `yaml:"token"`
	}{}
	if err := Load("", &secret); fmt.Sprint(err) != "the key token would hold a secret in plain sight: make it token_file" {
		t.Error(err)
	}
	clash := struct {
		A struct {
			BC int `yaml:"b_c"`
		} `yaml:"a"`
		AB struct {
			C int `yaml:"c"`
		} `yaml:"a_b"`
	}{}
	if err := Load("", &clash); fmt.Sprint(err) != "the keys a.b_c and a_b.c have the same environment variable SPILLWAY_A_B_C: rename one" {
		t.Error(err)
	}
}

func TestDump(t *testing.T) {
	s := defaults()
	s.Shelves = []shelf{{"top: shelf", 10}}
	s.Address = netip.MustParseAddr("192.0.2.1")
	s.Delivery = &delivery{3}
	out, err := Dump(s)
	if err != nil {
		t.Fatal(err)
	}
	want := `name: corner
open: false
closing: 8h
address: 192.0.2.1
tags:
  - food
sizes: []
shelves:
  - label: "top: shelf"
    height: 10
prices:
  tea: 2.0
owners: {}
till:
  drawers: 1
  password_file: ""
  receipt:
    width: 80
    margin: 0.0
delivery:
  radius: 3
branch: 0
`
	if d := cmp.Diff(want, out); d != "" {
		t.Error(d)
	}
	again, _, err := load(t, out)
	if err != nil {
		t.Fatal(err)
	}
	s.Sizes, s.Owners = []int{}, map[string]string{}
	if d := diff(s, again); d != "" {
		t.Errorf("what is dumped reads otherwise: %s", d)
	}
}

func TestShortDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 15 * time.Second: "15s", time.Minute: "1m", 90 * time.Minute: "1h30m", 24 * time.Hour: "24h",
		time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s", -time.Minute: "-1m",
	} {
		got := short(d)
		if back, err := time.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// Whatever a file holds, it is read or refused with the file's name; a prefix of a good one too.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yml")
	for _, path := range files {
		if text, err := os.ReadFile(path); err == nil {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) { tryLoad(t, text) })
}

func tryLoad(t *testing.T, text []byte) {
	t.Helper()
	if bytes.Count(text, []byte("[")) > 500 || bytes.Count(text, []byte("- ")) > 500 {
		return // the YAML reader takes long over deep nesting
	}
	path := filepath.Join(t.TempDir(), "f.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := defaults()
	err := Load(path, &s, WithEnv(nil))
	if err != nil && !strings.HasPrefix(err.Error(), path) {
		t.Errorf("the error %q does not begin with the file", err)
	}
}

func TestEveryPrefix(t *testing.T) {
	text, err := os.ReadFile("testdata/shop.good.yml")
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(text) + 1 {
		tryLoad(t, text[:i:i])
	}
}
