// Package telemetry is how the process speaks of itself: logs, metrics and traces. It knows nothing of what is measured.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Config is the `telemetry` block of the configuration.
type Config struct {
	LogLevel     string  `yaml:"log_level"`     // debug, info, warn or error
	LogFormat    string  `yaml:"log_format"`    // text or json
	OTLPEndpoint string  `yaml:"otlp_endpoint"` // URL traces are sent to, such as http://127.0.0.1:4318; empty = no traces, at no cost
	TraceRatio   float64 `yaml:"trace_ratio"`   // share of traces that is kept, 0 to 1
	Listen       string  `yaml:"listen"`        // host:port of /metrics in a process that serves nothing else; empty = none
}

// DefaultConfig logs text and traces nothing.
func DefaultConfig() Config { return Config{LogLevel: "info", LogFormat: "text", TraceRatio: 0.01} }

// Validate says which key is wrong and what it may be.
func (c Config) Validate() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return fmt.Errorf("telemetry.log_level %q: write debug, info, warn or error", c.LogLevel)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return fmt.Errorf("telemetry.log_format %q: write text or json", c.LogFormat)
	}
	if c.TraceRatio < 0 || c.TraceRatio > 1 {
		return fmt.Errorf("telemetry.trace_ratio %g: write a share from 0 to 1", c.TraceRatio)
	}
	if c.OTLPEndpoint != "" && !strings.HasPrefix(c.OTLPEndpoint, "http://") && !strings.HasPrefix(c.OTLPEndpoint, "https://") {
		return fmt.Errorf("telemetry.otlp_endpoint %q: write a URL, such as http://127.0.0.1:4318", c.OTLPEndpoint)
	}
	return nil
}

// NewLogger writes to w as configured.
func NewLogger(w io.Writer, c Config) (*slog.Logger, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, err
	}
	options.Level = level
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

// Telemetry is the process's metrics and traces.
type Telemetry struct {
	Registry *prometheus.Registry
	tracers  trace.TracerProvider
	shutdown func(context.Context) error
}

// New makes a registry with the runtime's own metrics and, when an endpoint is configured, a tracer that exports to it.
func New(c Config, service, version string) (*Telemetry, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &Telemetry{
		Registry: prometheus.NewRegistry(), tracers: noop.NewTracerProvider(), shutdown: func(context.Context) error { return nil },
	}
	t.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: strings.ReplaceAll(service, "-", "_") + "_build_info", Help: "Always 1; the label says which version runs.",
			ConstLabels: prometheus.Labels{"version": version},
		}, func() float64 { return 1 }))
	if c.OTLPEndpoint == "" {
		return t, nil
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(strings.TrimSuffix(c.OTLPEndpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, fmt.Errorf("prepare the export of traces to %s: %w", c.OTLPEndpoint, err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.TraceRatio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", service), attribute.String("service.version", version))),
	)
	t.tracers, t.shutdown = provider, provider.Shutdown
	return t, nil
}

// Serve shows /metrics and /healthz on Config.Listen until ctx ends.
func (t *Telemetry) Serve(ctx context.Context, listen string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on telemetry.listen %s: %w: choose another port; a process that shares its file with others gets its own by SPILLWAY_TELEMETRY_LISTEN",
			listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// Tracer is a tracer named after the package that uses it.
func (t *Telemetry) Tracer(name string) trace.Tracer { return t.tracers.Tracer(name) }

// Shutdown exports what is pending.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if err := t.shutdown(ctx); err != nil {
		return fmt.Errorf("export the last traces: %w", err)
	}
	return nil
}
