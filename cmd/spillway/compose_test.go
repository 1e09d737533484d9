package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"github.com/spillway-io/spillway/internal/config"
	"github.com/spillway-io/spillway/internal/testenv"
)

const top = "../.."

// images are the versions that everything under deploy, the compose file and the Dockerfile must name.
func images(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(top + "/deploy/images.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	for name, image := range out {
		if !regexp.MustCompile(`^[a-z0-9./-]+:[\w.-]*\d[\w.-]*$`).MatchString(image) {
			t.Errorf("%s: %q is not pinned", name, image)
		}
	}
	return out
}

func composeProject(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{top + "/docker-compose.yml"}, cli.WithProfiles([]string{"simulate"}), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) < 7 {
		t.Fatalf("saw %d services", len(project.Services))
	}
	return project
}

func TestComposeFileAgreesWithWhatItStarts(t *testing.T) {
	project, pinned := composeProject(t), images(t)
	if want := "apache/kafka:" + testenv.ApacheKafkaVersion; pinned["kafka"] != want {
		t.Errorf("deploy/images.json ships %s, and tests run on %s", pinned["kafka"], want)
	}
	made := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "sh", top+"/deploy/compose/secrets.sh", made).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, secret := range project.Secrets {
		text, err := os.ReadFile(filepath.Join(made, filepath.Base(secret.File)))
		if err != nil || len(text) < 32 {
			t.Errorf("secrets.sh makes no good %s: %d characters, %v", name, len(text), err)
		}
		if !strings.HasSuffix(filepath.Dir(secret.File), "/deploy/compose/secrets") {
			t.Errorf("the secret %s is in %s", name, secret.File)
		}
	}
	for name, s := range project.Services {
		t.Run(name, func(t *testing.T) {
			if want, ok := pinned[name]; ok {
				if s.Image != want {
					t.Errorf("the image is %s, deploy/images.json says %s", s.Image, want)
				}
			} else if s.Image != "spillway:local" || s.Build == nil || s.Build.Args["VERSION"] == nil {
				t.Errorf("the image %s is in no line of deploy/images.json, nor built here with its VERSION", s.Image)
			}
			for _, p := range s.Ports {
				if p.HostIP != "127.0.0.1" {
					t.Errorf("port %s is published on %q: loopback only", p.Published, p.HostIP)
				}
			}
			if s.MemLimit == 0 {
				t.Error("has no memory limit")
			}
			if name != "simulate" && name != "probe" && s.HealthCheck == nil { // these serve nobody
				t.Error("has no health check")
			}
			if s.Image == "spillway:local" {
				startable(t, s.Command)
			}
			for _, v := range s.Volumes {
				if v.Type == types.VolumeTypeBind {
					if _, err := os.Stat(v.Source); err != nil {
						t.Errorf("mounts %s: %v", v.Source, err)
					}
					if !v.ReadOnly {
						t.Errorf("may write %s", v.Source)
					}
				} else if _, ok := project.Volumes[v.Source]; !ok {
					t.Errorf("uses the volume %q, which is not declared", v.Source)
				}
			}
			for key, value := range s.Environment {
				if value != nil && regexp.MustCompile(`(?i)(password|token|secret)`).MatchString(key) && !strings.HasPrefix(*value, "/run/secrets/") {
					t.Errorf("%s=%s: secrets come as files", key, *value)
				}
			}
			granted := []string{}
			for _, secret := range s.Secrets {
				granted = append(granted, "/run/secrets/"+secret.Source)
			}
			for _, path := range secretsReadBy(t, s) {
				if !slices.Contains(granted, path) {
					t.Errorf("reads %s and is not given it", path)
				}
			}
		})
	}
}

// startable holds a command line of a deployment against the program's own commands and flags.
func startable(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := newRoot().Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd.Name() != args[0] {
		t.Errorf("starts `spillway %s`, which there is not: %v", strings.Join(args, " "), err)
	}
}

// ofTree gives the text of a file of the tree.
func ofTree(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryDeploymentProbes: without a probe whose metrics are scraped the alert ProbeFailing is blind.
func TestEveryDeploymentProbes(t *testing.T) {
	goesOn := func(where string, args []string) {
		t.Helper()
		if len(args) == 0 || args[0] != "probe" || !slices.Contains(args, "--every") {
			t.Errorf("%s starts `spillway %s`, no probe that goes on", where, strings.Join(args, " "))
			return
		}
		startable(t, args)
	}
	goesOn("compose", composeProject(t).Services["probe"].Command)
	s := defaultSettings()
	if err := config.Load(top+"/deploy/compose/probe.yaml", &s); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(s.Telemetry.Listen)
	if err != nil || !strings.Contains(ofTree(t, "deploy/prometheus/prometheus.yml"), "targets: [probe:"+port+"]") {
		t.Errorf("compose's probe shows its metrics on %q, where Prometheus does not look", s.Telemetry.Listen)
	}

	unit := ofTree(t, "deploy/systemd/spillway-probe.service")
	_, line, _ := strings.Cut(unit, "ExecStart=/usr/local/bin/spillway ")
	line, _, _ = strings.Cut(line, "\n")
	goesOn("systemd", strings.Fields(line))
	if !strings.Contains(unit, "\nEnvironment=SPILLWAY_TELEMETRY_LISTEN=127.0.0.1:"+port+"\n") {
		t.Errorf("systemd's probe does not show its metrics on port %s, as compose's does", port)
	}

	parsed, err := parser.ParseFile(top+"/deploy/k8s/spillway.yaml", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range parsed.Docs {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct {
				Template struct {
					Metadata struct{ Annotations map[string]string }
					Spec     struct {
						Containers []struct {
							Args []string
							Env  []struct{ Name, Value string }
						}
					}
				}
			}
		}
		if err := yaml.NodeToValue(document.Body, &object); err != nil || object.Kind != "Deployment" || object.Metadata.Name != "spillway-probe" {
			continue
		}
		c := object.Spec.Template.Spec.Containers[0]
		goesOn("Kubernetes", c.Args)
		at := "0.0.0.0:" + object.Spec.Template.Metadata.Annotations["prometheus.io/port"]
		if !strings.HasSuffix(at, ":"+port) {
			t.Errorf("Kubernetes' probe says %s, compose's listens on port %s", at, port)
		}
		for _, e := range c.Env {
			if e.Name == "SPILLWAY_TELEMETRY_LISTEN" && e.Value == at {
				return
			}
		}
		t.Errorf("Kubernetes' probe does not show its metrics on %s, where it says so", at)
	}
	t.Error("the Kubernetes manifest has no whole probe")
}

// secretsReadBy are the secrets that a service's environment and mounted files name.
func secretsReadBy(t *testing.T, s types.ServiceConfig) (out []string) {
	t.Helper()
	var text bytes.Buffer
	for _, value := range s.Environment {
		if value != nil {
			fmt.Fprintln(&text, *value)
		}
	}
	for _, v := range s.Volumes {
		if v.Type != types.VolumeTypeBind {
			continue
		}
		err := filepath.WalkDir(v.Source, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, ".json") {
				return err
			}
			content, err := os.ReadFile(path)
			text.Write(content)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	return regexp.MustCompile(`/run/secrets/\w+`).FindAllString(text.String(), -1)
}

// TestAddressesOfComposeAgree holds every host:port in a configuration against the services and the ports that they
// listen on.
func TestAddressesOfComposeAgree(t *testing.T) {
	project := composeProject(t)
	listens := map[string][]string{
		"kafka": {"9092", "9093"}, "clickhouse": {"9000"}, "spillway": {"8470"}, "simulate": {"8472"}, "probe": {"8475"}, "prometheus": {"9090"}, "alertmanager": {"9093"},
	}
	texts := map[string]string{}
	for _, path := range []string{
		"deploy/compose/spillway.yaml", "deploy/compose/simulate.yaml", "deploy/compose/probe.yaml", "deploy/prometheus/prometheus.yml",
		"deploy/grafana/provisioning/datasources/spillway.yml",
	} {
		text, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	for name, s := range project.Services {
		for key, value := range s.Environment {
			if value != nil {
				texts[key+" of "+name] = *value
			}
		}
	}
	for path, text := range texts {
		for _, m := range regexp.MustCompile(`\b(kafka|clickhouse|spillway|simulate|probe|prometheus|alertmanager|grafana):(\d+)`).FindAllStringSubmatch(text, -1) {
			if _, ok := project.Services[m[1]]; !ok || !slices.Contains(listens[m[1]], m[2]) {
				t.Errorf("%s names %s, which nothing listens on", path, m[0])
			}
		}
	}
	for _, path := range []string{"spillway.yaml", "simulate.yaml", "probe.yaml"} {
		s := defaultSettings()
		if err := config.Load(top+"/deploy/compose/"+path, &s); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if err := (stages{collect: true}).reachable(&s); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if path == "spillway.yaml" && s.API.Listen != "0.0.0.0:8470" {
			t.Errorf("the service listens on %s", s.API.Listen)
		}
	}
	grafana, err := os.ReadFile(top + "/deploy/grafana/provisioning/dashboards/spillway.yml")
	if err != nil {
		t.Fatal(err)
	}
	mounted := false
	for _, v := range project.Services["grafana"].Volumes {
		if filepath.Base(v.Source) == "dashboards" {
			mounted = true
			if !strings.Contains(string(grafana), "path: "+v.Target+"\n") {
				t.Errorf("the boards are mounted at %s, which the provider does not read", v.Target)
			}
			home := project.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
			if _, err := os.Stat(filepath.Join(v.Source, filepath.Base(*home))); err != nil || filepath.Dir(*home) != v.Target {
				t.Errorf("the home board is %s: %v", *home, err)
			}
		}
	}
	if !mounted {
		t.Error("the boards are not mounted into Grafana")
	}
	sources, err := os.ReadFile(top + "/deploy/grafana/provisioning/datasources/spillway.yml")
	if err != nil {
		t.Fatal(err)
	}
	boards, err := filepath.Glob(top + "/dashboards/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatal("no boards", err)
	}
	for _, board := range boards {
		text, err := os.ReadFile(board)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"uid": "(spillway-(?:clickhouse|prometheus))"`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(sources), "uid: "+m[1]+"\n") {
				t.Errorf("%s uses the data source %s, which is not provisioned", board, m[1])
			}
		}
	}
}

func TestDockerfileUsesThePinnedImagesAndCopiesWhatExists(t *testing.T) {
	pinned := images(t)
	text, err := os.ReadFile(top + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FROM " + pinned["build"] + " AS build\n", "FROM " + pinned["base"] + "\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Dockerfile has no line %q", want)
		}
	}
	// The base has no certificates, and where Go looks for the system's first is where Debian keeps them.
	if last := string(text[bytes.LastIndex(text, []byte("FROM ")):]); !strings.Contains(last, "\nCOPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt\n") {
		t.Error("the image has no certificates: TLS with an empty ca_file trusts nobody")
	}
	copied := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^COPY ([a-z].*) \S+$`).FindAllStringSubmatch(string(text), -1) {
		for _, path := range strings.Fields(m[1]) {
			copied[path] = true
			if _, err := os.Stat(filepath.Join(top, path)); err != nil {
				t.Errorf("the Dockerfile copies %s: %v", path, err)
			}
		}
	}
	ignored, err := os.ReadFile(top + "/.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	for path := range copied {
		if !strings.Contains(string(ignored), "!"+path+"\n") {
			t.Errorf(".dockerignore keeps %s out of the build", path)
		}
	}
	// What the binary is made of must be copied: every package of ours it imports.
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.Lines(string(out)) {
		if ours, ok := strings.CutPrefix(strings.TrimSpace(path), module); ok && !copied[strings.Split(ours, "/")[0]] {
			t.Errorf("the binary needs %s, which the Dockerfile does not copy", ours)
		}
	}
}

// TestKubernetesManifests reads every manifest, and the configuration inside, as the program would.
func TestKubernetesManifests(t *testing.T) {
	pinned := images(t)
	files, err := filepath.Glob(top + "/deploy/k8s/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("manifests: %v, %v", files, err)
	}
	for _, path := range files {
		parsed, err := parser.ParseFile(path, 0)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, document := range parsed.Docs {
			if document.Body == nil {
				continue
			}
			var object struct {
				APIVersion string            `yaml:"apiVersion"`
				Kind       string            `yaml:"kind"`
				Data       map[string]string `yaml:"data"`
				Metadata   struct {
					Name string `yaml:"name"`
				} `yaml:"metadata"`
			}
			if err := yaml.NodeToValue(document.Body, &object); err != nil {
				continue // a part of the extender's that is not an object
			}
			if filepath.Base(path) == "advice.yaml" {
				continue
			}
			if object.APIVersion == "" || object.Kind == "" || object.Metadata.Name == "" {
				t.Errorf("%s: an object without apiVersion, kind or name", path)
			}
			if text, ok := object.Data["spillway.yaml"]; ok {
				file := filepath.Join(t.TempDir(), "spillway.yaml")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				s := defaultSettings()
				if err := config.Load(file, &s); err != nil {
					t.Errorf("%s: the configuration in it: %v", path, err)
				}
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*image: (\S+)$`).FindAllStringSubmatch(string(text), -1) {
			known := strings.HasSuffix(m[1], "spillway:VERSION")
			for _, image := range pinned {
				known = known || image == m[1]
			}
			if filepath.Base(path) != "advice.yaml" && !known {
				t.Errorf("%s: the image %s is in no line of deploy/images.json", path, m[1])
			}
		}
	}
}

func TestSystemdUnits(t *testing.T) {
	units, err := filepath.Glob(top + "/deploy/s*/*.service")
	if err != nil || len(units) < 3 {
		t.Fatalf("units: %v, %v", units, err)
	}
	verify := testenv.Binary(t, "systemd-analyze")
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		// The program need not be installed for its unit to be right.
		copied := filepath.Join(t.TempDir(), filepath.Base(unit))
		if err := os.WriteFile(copied, bytes.ReplaceAll(text, []byte("/usr/local/bin/spillway"), []byte("/bin/true")), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), verify, "verify", "--man=no", copied).CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		for _, m := range regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/spillway (.+)`).FindAllStringSubmatch(string(text), -1) {
			if args := strings.Fields(m[1]); args[0] != "%i" {
				startable(t, args)
			}
		}
	}
}

// TestSecretsAreReadableByTheUnits follows each secret of the systemd units from who writes it to the key that names it.
func TestSecretsAreReadableByTheUnits(t *testing.T) {
	const group = "spillway-secrets"
	install := ofTree(t, "deploy/docs/install.md")
	if !strings.Contains(install, "\ngroupadd --system --force "+group+"\n") {
		t.Errorf("install.md does not make the group %s, without which no unit starts", group)
	}
	for _, unit := range []string{"spillway.service", "spillway@.service"} {
		text := ofTree(t, "deploy/systemd/"+unit)
		if !strings.Contains(text, "\nSupplementaryGroups="+group+"\n") {
			t.Errorf("%s may not read what belongs to the group %s", unit, group)
		}
		// A copy is taken once, at the start, and a file that is not there keeps the unit from starting.
		if strings.Contains(text, "LoadCredential") {
			t.Errorf("%s takes a copy of a secret that is renewed", unit)
		}
	}
	defaults := defaultSettings()
	dump, err := config.Dump(&defaults)
	if err != nil {
		t.Fatal(err)
	}
	known := keys(t, []byte(dump))
	rows := regexp.MustCompile("(?m)^\\| `(/[^`]+)` \\|.*\\| `([a-z_.]+)` \\|$").FindAllStringSubmatch(install, -1)
	if len(rows) < 5 {
		t.Errorf("install.md lists %d secrets", len(rows))
	}
	token := ""
	for _, row := range rows {
		if !slices.Contains(known, row[2]) {
			t.Errorf("install.md names the key %s, which there is not", row[2])
		}
		if row[2] == "collect.slurm.rest.token_file" {
			token = row[1]
		}
	}
	if slurm := ofTree(t, "deploy/slurm/README.md"); !strings.Contains(slurm, "token_file: "+token+"}") {
		t.Errorf("the README of deploy/slurm does not name the token %s", token)
	}

	// The command of the timer's unit, with a directory of the test's own in place of the one systemd makes.
	unit := ofTree(t, "deploy/slurm/slurm-token.service")
	dir := filepath.Dir(token)
	for _, want := range []string{"Group=" + group, "RuntimeDirectory=" + strings.TrimPrefix(dir, "/run/"), "RuntimeDirectoryMode=0750", "RuntimeDirectoryPreserve=yes", "UMask=0027"} {
		if !strings.Contains(unit, "\n"+want+"\n") {
			t.Errorf("slurm-token.service has no %s", want)
		}
	}
	m := regexp.MustCompile(`(?m)^ExecStart=/bin/sh -c '(.*)'$`).FindStringSubmatch(unit)
	if m == nil {
		t.Fatal("slurm-token.service starts no shell")
	}
	made, bin := t.TempDir(), t.TempDir()
	renew := func(scontrol string) error {
		if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte("#!/bin/sh\n"+scontrol+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "umask 0027; "+strings.ReplaceAll(m[1], dir, made))
		cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
		return cmd.Run()
	}
	if err := renew(`echo "SLURM_JWT=$*"`); err != nil {
		t.Fatal(err)
	}
	if err := renew("echo half; exit 1"); err == nil {
		t.Error("a token that cannot be made is no failure of the unit")
	}
	path := filepath.Join(made, filepath.Base(token))
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "SLURM_JWT=token username=spillway lifespan=3600\n" {
		t.Errorf("the token is %q, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil {
		t.Error(err)
	} else if info.Mode().Perm() != 0o640 {
		t.Errorf("the token's file has mode %v, want 0640", info.Mode())
	}
}

// TestStagesOfOneMachineShareAFileAndNoAddress reads the shared file with each stage's variables, as its unit has them.
func TestStagesOfOneMachineShareAFileAndNoAddress(t *testing.T) {
	install, err := os.ReadFile(top + "/deploy/docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(shared, []byte("telemetry: {listen: \"127.0.0.1:8472\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := map[string]string{defaultSettings().API.Listen: "serve"}
	for _, stage := range []string{"collect", "load", "enrich"} {
		path := "deploy/systemd/" + stage + ".env"
		text, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(install), path+" ") {
			t.Errorf("install.md does not install %s", path)
		}
		s := defaultSettings()
		note := func(text string) { t.Errorf("%s: %s", path, text) }
		if err := config.Load(shared, &s, config.WithEnv(strings.Split(string(text), "\n")), config.WithNotes(note)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if other := taken[s.Telemetry.Listen]; other != "" || s.Telemetry.Listen == "" {
			t.Errorf("%s: %s listens on %q, as %q does", path, stage, s.Telemetry.Listen, other)
		}
		taken[s.Telemetry.Listen] = stage
	}
}
