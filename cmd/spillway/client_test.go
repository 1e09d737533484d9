package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/query/api"
)

// answered runs one command line against an address.
func answered(t *testing.T, address string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, bad bytes.Buffer
	code = run(t.Context(), append(args, "--api", address), &out, &bad)
	http.DefaultClient.CloseIdleConnections()
	return code, out.String(), bad.String()
}

func TestARefusalSaysWhatIsWrongWithWhat(t *testing.T) {
	server, err := api.New(api.DefaultConfig(), api.Deps{Log: slog.New(slog.DiscardHandler), Now: time.Now, Version: version})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server.Handler())
	defer s.Close()
	for line, want := range map[string]string{
		"spills --limit 5000":              "query.limit: expected number <= 1000",
		"spills --cause rain":              "query.cause: expected value to be one of",
		"slots --gpus 0":                   "query.gpus: expected number >= 1",
		"domains --at yesterday":           "query.at: invalid date/time",
		"domains rack01 --at yesterday":    "query.at: invalid date/time",
		"report --gpus 70000":              "query.slot_gpus: expected number <= 65535",
		"advise --gpus 4 --max-domains -1": "no advice", // the advisor's own refusals are as they were
	} {
		code, _, said := answered(t, s.URL, strings.Fields(line)...)
		if !strings.Contains(said, want) || code != exitUsage && want != "no advice" {
			t.Errorf("%s: got %d %q, want %d and %q", line, code, said, exitUsage, want)
		}
	}
	// A service that wants a token.
	withToken := api.DefaultConfig()
	withToken.TokenFile = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(withToken.TokenFile, []byte("a-token-of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err = api.New(withToken, api.Deps{Log: slog.New(slog.DiscardHandler), Now: time.Now, Version: version})
	if err != nil {
		t.Fatal(err)
	}
	closed := httptest.NewServer(server.Handler())
	defer closed.Close()
	for _, line := range []string{"spills", "advise --gpus 4"} {
		if code, _, said := answered(t, closed.URL, strings.Fields(line)...); code != exitUsage || !strings.Contains(said, "--token-file or SPILLWAY_TOKEN_FILE") {
			t.Errorf("%s without a token: got %d %q", line, code, said)
		}
	}
	if code, _, said := answered(t, closed.URL, "advise", "--gpus", "4", "--token-file", withToken.TokenFile); strings.Contains(said, "token") {
		t.Errorf("with its token: got %d %q", code, said)
	}
	// Two faults, of which one is nowhere in particular, and a name that is more than text.
	twice := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"detail":"validation failed","errors":[{"location":"query.gpus","message":"too many \u001b[31m"},{"message":"no such thing"}]}`))
	}))
	defer twice.Close()
	if _, _, said := answered(t, twice.URL, "slots"); said != "spillway: validation failed: query.gpus: too many [31m; no such thing\n" {
		t.Errorf("got %q", said)
	}
}
