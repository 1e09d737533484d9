package telemetry

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestTracesReachTheEndpointAndCostNothingWithoutOne(t *testing.T) {
	var posts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" {
			posts.Add(1)
		}
	}))
	defer server.Close()
	c := DefaultConfig()
	c.OTLPEndpoint, c.TraceRatio = server.URL, 1
	tel, err := New(c, "thing", "1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, span := tel.Tracer("test").Start(ctx, "work")
	span.End()
	if err := tel.Shutdown(ctx); err != nil || posts.Load() != 1 {
		t.Errorf("got %d posts %v, want 1", posts.Load(), err)
	}

	off, err := New(DefaultConfig(), "some-thing", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, span := off.Tracer("test").Start(ctx, "work"); span.IsRecording() {
		t.Error("a span is recorded though no endpoint is configured")
	}
	families, err := off.Registry.Gather()
	if err != nil || len(families) < 10 {
		t.Errorf("got %d metric families %v, want the runtime's", len(families), err)
	}
	for _, f := range families {
		if strings.Contains(f.GetName(), "-") {
			t.Errorf("%s is a difference to Prometheus, and no name", f.GetName())
		}
	}
}

func TestLoggerFollowsItsConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		level, format, wants string
		bad                  bool
	}{
		"text":            {"info", "text", "msg=hello", false},
		"json":            {"debug", "json", `"msg":"hello"`, false},
		"quiet":           {"error", "text", "", false},
		"unknown level":   {"loud", "text", "telemetry.log_level", true},
		"unknown format":  {"info", "xml", "telemetry.log_format", true},
		"a ratio above 1": {"info", "text", "telemetry.trace_ratio", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			c.LogLevel, c.LogFormat = test.level, test.format
			if name == "a ratio above 1" {
				c.TraceRatio = 2
			}
			var out bytes.Buffer
			log, err := NewLogger(&out, c)
			if test.bad {
				if err == nil || !strings.Contains(err.Error(), test.wants) {
					t.Fatalf("got %v, want an error naming %s", err, test.wants)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			log.Info("hello")
			if !strings.Contains(out.String(), test.wants) || test.wants == "" && out.Len() > 0 {
				t.Errorf("got %q, want %q", out.String(), test.wants)
			}
		})
	}
}

func TestServeShowsMetricsUntilTold(t *testing.T) {
	tel, err := New(DefaultConfig(), "thing", "1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tel.Serve(ctx, "127.0.0.1:0"); err == nil {
		return // ended as told
	}
	if err := tel.Serve(context.Background(), "nowhere:-1"); err == nil || !strings.Contains(err.Error(), "telemetry.listen") {
		t.Errorf("got %v, want an error naming the key", err)
	}
}
