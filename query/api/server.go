// Package api is the last hop of the flow: the questions of query/read over HTTP, described by an OpenAPI document that
// is generated from these types. It never touches a table itself and never answers "none" for "cannot say".
package api

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/semaphore"

	"github.com/spillway-io/spillway/query/ledger"
	"github.com/spillway-io/spillway/query/live"
	"github.com/spillway-io/spillway/query/read"
)

// Deps is what the server is given.
type Deps struct {
	Reader   *read.Reader
	Ping     func(context.Context) error // the store answers
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	Version  string
	Advise   *AdviseConfig  // nil: the defaults
	Feed     *live.Feed     // nil: there is no advice
	Ledger   *ledger.Ledger // nil: advice is not kept
}

// Server is the HTTP server of the API, /metrics, /healthz and /readyz.
type Server struct {
	cfg       Config
	deps      Deps
	token     []byte
	metrics   *metrics
	advise    AdviseConfig
	advisor   *advisor
	extending *semaphore.Weighted // bytes of kube-scheduler's calls
	api       huma.API
	handler   http.Handler
	listener  net.Listener
}

type metrics struct {
	seconds  *prometheus.HistogramVec
	rejected *prometheus.CounterVec
}

// New checks the configuration, reads the token and builds the routes; it does not listen.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, deps: deps, extending: semaphore.NewWeighted(extenderMemory), metrics: &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_query_request_seconds", Help: "Time to answer an API call, by operation and status.",
			Buckets: []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"operation", "status"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_query_rejected_total", Help: "API calls refused before any work, by reason.",
		}, []string{"reason"}),
	}}
	if cfg.TokenFile != "" {
		token, err := os.ReadFile(cfg.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read api.token_file: %w", err)
		}
		if s.token = []byte(strings.TrimSpace(string(token))); len(s.token) < 16 {
			return nil, fmt.Errorf("api.token_file %s holds %d characters: write at least 16, for example from `openssl rand -hex 32`",
				cfg.TokenFile, len(s.token))
		}
	}
	if deps.Registry != nil {
		deps.Registry.MustRegister(s.metrics.seconds, s.metrics.rejected)
		if deps.Reader != nil {
			deps.Registry.MustRegister(&gauges{reader: deps.Reader, log: deps.Log, now: deps.Now, sizes: cfg.MetricSizes})
		}
	}
	s.advise = DefaultAdviseConfig()
	if deps.Advise != nil {
		s.advise = *deps.Advise
	}
	if err := s.advise.Validate(); err != nil {
		return nil, err
	}
	s.advisor = newAdvisor(s.advise, deps, s.advise.config(cfg.Links))
	mux := http.NewServeMux()
	s.api = humago.New(mux, apiConfig(deps.Version))
	s.routes()
	s.questionRoutes()
	s.adviceRoutes()
	describeNulls(s.api.OpenAPI().Components.Schemas)
	s.extender(mux)
	s.plain(mux)
	if err := s.page(mux); err != nil {
		return nil, err
	}
	s.handler = s.guard(mux)
	return s, nil
}

func apiConfig(version string) huma.Config {
	c := huma.DefaultConfig("Spillway", version)
	c.Info.Description = "Which jobs crossed an NVLink domain, by how much and why, and where slots are. " +
		"Every answer says how old and how complete its facts are; null is unknown, never zero."
	c.DocsPath = "" // its page would load scripts from another host
	c.CreateHooks = nil
	return c
}

// Handler is the whole service, for a test or another server.
func (s *Server) Handler() http.Handler { return s.handler }

// OpenAPI is the description of the API as YAML, 3.1.
func (s *Server) OpenAPI() ([]byte, error) { return s.api.OpenAPI().YAML() }

// Listen binds the address, so that a port in use is an error before anything starts. Addr tells it then.
func (s *Server) Listen() error {
	l, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on api.listen %s: %w: choose another port, or 0 for a free one", s.cfg.Listen, err)
	}
	s.listener = l
	return nil
}

// Addr is the address bound, or "" before Listen.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Name is the component's name.
func (s *Server) Name() string { return "api" }

// Run serves until ctx ends, then lets calls in work finish for a moment.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if err := s.Listen(); err != nil {
			return err
		}
	}
	srv := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: s.cfg.Timeout + 5*time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(s.listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve the api: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	err := srv.Shutdown(stop)
	<-done
	if err != nil {
		return fmt.Errorf("stop the api: %w", errors.Join(err, srv.Close()))
	}
	return nil
}

// plain registers what is not described by OpenAPI: metrics and probes.
func (s *Server) plain(mux *http.ServeMux) {
	if s.deps.Registry != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.deps.Registry, promhttp.HandlerOpts{}))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if err := s.deps.Ping(ctx); err != nil {
			http.Error(w, "the store does not answer: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
}

// guard asks for the token on /v1, and bounds there and for kube-scheduler, which has no token to send, the work in hand and
// the time of each answer. The scheduler takes a refusal for no opinion: its configuration calls the extender ignorable. X-Advice
// says so to whoever asks for advice.
func (s *Server) guard(next http.Handler) http.Handler {
	slots := make(chan struct{}, s.cfg.MaxConcurrent)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := strings.HasPrefix(r.URL.Path, "/v1/")
		if !asked && !strings.HasPrefix(r.URL.Path, "/scheduler/") {
			next.ServeHTTP(w, r)
			return
		}
		if asked && s.token != nil {
			given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok || subtle.ConstantTimeCompare([]byte(given), s.token) != 1 {
				s.metrics.rejected.WithLabelValues("token").Inc()
				w.Header().Set("WWW-Authenticate", "Bearer")
				w.Header().Set("X-Advice", "none")
				problem(w, http.StatusUnauthorized, "send the header Authorization: Bearer TOKEN with the token of api.token_file")
				return
			}
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			s.metrics.rejected.WithLabelValues("busy").Inc()
			w.Header().Set("Retry-After", "1")
			w.Header().Set("X-Advice", "none")
			problem(w, http.StatusServiceUnavailable, "too many calls in work: retry in a second")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// problem writes an RFC 9457 answer where no operation is reached.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"title\":%q,\"status\":%d,\"detail\":%q}\n", http.StatusText(status), status, detail)
}
