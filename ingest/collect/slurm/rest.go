package slurm

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
)

// versions are the data_parser versions this collector asks slurmrestd for, newest first. Every Slurm since 23.11 serves
// one of them: a release serves the four or so before it.
var versions = []string{"v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40"}

func isVersion(s string) bool {
	n, ok := strings.CutPrefix(s, "v0.0.")
	_, err := strconv.ParseUint(n, 10, 16)
	return ok && err == nil
}

// maxAnswer bounds an answer: a document of 10,000 jobs of 36 nodes has 2 GB.
const maxAnswer = 8 << 30

// unknownJob is the reason of an answer that Slurm does not know the job asked about.
const unknownJob = "unknown_job"

// fewJobs is how many jobs are asked about one by one; for more, one question about the window is cheaper.
const fewJobs = 20

// restSource asks slurmrestd.
type restSource struct {
	cfg    REST
	base   string // http://host:port
	client *http.Client

	mu      sync.Mutex
	version string // "" = not discovered yet
}

func newREST(cfg REST, timeout time.Duration) (*restSource, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read rest.url: %w", err)
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: timeout,
	}
	r := &restSource{cfg: cfg, base: strings.TrimSuffix(u.String(), "/")}
	switch u.Scheme {
	case "unix":
		r.base = "http://slurmrestd"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", u.Path)
		}
	case "https":
		if transport.TLSClientConfig, err = tlsConfig(cfg); err != nil {
			return nil, err
		}
	}
	if cfg.Version != "auto" {
		r.version = cfg.Version
	}
	// A redirect would carry the token to wherever it points.
	r.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return r, nil
}

func tlsConfig(cfg REST) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read rest.ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read rest.ca_file: %s holds no certificate in PEM form", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read rest.cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (r *restSource) Name() string { return SourceREST }

func (r *restSource) close() { r.client.CloseIdleConnections() }

func (r *restSource) Jobs(ctx context.Context, since time.Time) Jobs {
	return func(yield func(*slurmjson.Job) error) (meta slurmjson.Meta, err error) {
		err = r.get(ctx, "slurm", "jobs/", sinceQuery(since), func(body io.Reader) error {
			if body == nil {
				meta.Unchanged = true
				return nil
			}
			meta, err = slurmjson.DecodeJobs(body, yield)
			return err
		})
		return meta, err
	}
}

func (r *restSource) Nodes(ctx context.Context, since time.Time) Nodes {
	return func(yield func(*slurmjson.Node) error) (meta slurmjson.Meta, err error) {
		err = r.get(ctx, "slurm", "nodes/", sinceQuery(since), func(body io.Reader) error {
			if body == nil {
				meta.Unchanged = true
				return nil
			}
			meta, err = slurmjson.DecodeNodes(body, yield)
			return err
		})
		return meta, err
	}
}

// sinceQuery asks for changes only. Slurm answers all or nothing: with any change it lists all jobs.
func sinceQuery(since time.Time) url.Values {
	if since.IsZero() {
		return nil
	}
	return url.Values{"update_time": {strconv.FormatInt(since.Unix(), 10)}}
}

// get asks one question and hands the answer's body to decode: nil when nothing has changed.
func (r *restSource) get(ctx context.Context, plugin, path string, query url.Values, decode func(io.Reader) error) error {
	version, err := r.discover(ctx)
	if err != nil {
		return err
	}
	target := r.base + "/" + plugin + "/" + version + "/" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	resp, err := r.do(ctx, target)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		return decode(nil)
	}
	if err := r.status(resp); err != nil {
		if reasonOf(err) == "version" && r.cfg.Version == "auto" {
			r.mu.Lock()
			r.version = "" // Slurm was upgraded: discover again
			r.mu.Unlock()
		}
		return err
	}
	err = decode(&capped{src: resp.Body, left: maxAnswer})
	switch {
	case err != nil && ctx.Err() != nil: // the connection was closed for it, which says less
		return failed("timeout", "read %s: %w; raise timeout if the cluster is that large", target, ctx.Err())
	case err != nil:
		return fmt.Errorf("read %s: %w", target, err)
	}
	return nil
}

// discover returns the configured version, or the newest that answers.
func (r *restSource) discover(ctx context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version != "" {
		return r.version, nil
	}
	for _, v := range versions {
		resp, err := r.do(ctx, r.base+"/slurm/"+v+"/ping/")
		if err != nil {
			return "", err
		}
		err = r.status(resp)
		resp.Body.Close()
		if reasonOf(err) == "version" {
			continue
		}
		if err != nil {
			return "", err
		}
		r.version = v
		return v, nil
	}
	return "", failed("version", "slurmrestd at %s serves none of the versions %s to %s; set rest.version to one it lists with slurmrestd -d list",
		r.cfg.URL, versions[0], versions[len(versions)-1])
}

func (r *restSource) do(ctx context.Context, target string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, failed("transport", "ask slurmrestd: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if r.cfg.User != "" {
		req.Header.Set("X-SLURM-USER-NAME", r.cfg.User)
	}
	if r.cfg.TokenFile != "" {
		token, err := readToken(r.cfg.TokenFile)
		if err != nil {
			return nil, failed("token", "read rest.token_file: %w", err)
		}
		req.Header.Set("X-SLURM-USER-TOKEN", token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, failed("transport", "ask slurmrestd: %w; check that it runs and that rest.url is right", err)
	}
	return resp, nil
}

// status turns every answer that is not JSON of a successful read into an error. Slurm answers a missing version and a
// missing token in plain text, and a dead slurmdbd in JSON.
func (r *restSource) status(resp *http.Response) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	isJSON := kind == "application/json"
	if resp.StatusCode == http.StatusOK && isJSON {
		return nil
	}
	path := resp.Request.URL.Path
	said := excerpt(resp.Body, isJSON)
	switch resp.StatusCode {
	case http.StatusOK:
		return failed("content_type", "slurmrestd answered %s with %q instead of JSON (%s); check that rest.url is slurmrestd's own", path, kind, said)
	case http.StatusUnauthorized, http.StatusForbidden:
		return failed("auth", "slurmrestd refused %s with %s (%s); make a new token with scontrol token, for the user in rest.user", path, resp.Status, said)
	case http.StatusNotFound:
		if isJSON {
			return failed(unknownJob, "slurmrestd knows nothing of %s (%s)", path, said)
		}
		return failed("version", "slurmrestd does not serve %s (%s); check rest.version against slurmrestd -d list", path, said)
	}
	return failed("status", "slurmrestd answered %s with %s (%s); check the daemons behind it, slurmctld for /slurm and slurmdbd for /slurmdb", path, resp.Status, said)
}

// excerpt is what an answer says of its failure, in one short line.
func excerpt(body io.Reader, isJSON bool) string {
	b, _ := io.ReadAll(io.LimitReader(body, 64<<10))
	if isJSON {
		_, err := slurmjson.DecodeJobs(bytes.NewReader(b), func(*slurmjson.Job) error { return nil })
		if err != nil {
			b = []byte(err.Error())
		}
	}
	text := strings.Join(strings.Fields(string(b)), " ")
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return strconv.Quote(text)
}

// readToken takes the bare token, and the line scontrol token prints.
func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimPrefix(strings.TrimSpace(string(b)), "SLURM_JWT=")
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s does not hold one token; write what scontrol token prints into it", path)
	}
	return token, nil
}

// capped fails instead of reading for ever.
type capped struct {
	src  io.Reader
	left int64
}

func (c *capped) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the answer has more than %d GB", maxAnswer>>30)
	}
	n, err := c.src.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// slurmDB asks slurmdbd through slurmrestd.
type slurmDB struct{ rest *restSource }

func (s slurmDB) Name() string { return SourceSlurmDB }

// Runs asks about few jobs one by one, and about many by the window they ended in.
func (s slurmDB) Runs(ctx context.Context, jobs []uint32, since, until time.Time) Jobs {
	return func(yield func(*slurmjson.Job) error) (meta slurmjson.Meta, err error) {
		decode := func(body io.Reader) error {
			if body == nil {
				return failed("status", "slurmrestd says that accounting has not changed, although it was asked for all of it")
			}
			meta, err = slurmjson.DecodeJobs(body, yield)
			return err
		}
		if len(jobs) == 0 || len(jobs) > fewJobs {
			err = s.rest.get(ctx, "slurmdb", "jobs/", url.Values{
				"start_time": {strconv.FormatInt(since.Unix(), 10)}, "end_time": {strconv.FormatInt(until.Unix(), 10)},
			}, decode)
			return meta, err
		}
		for _, id := range jobs {
			err := s.rest.get(ctx, "slurmdb", "job/"+strconv.FormatUint(uint64(id), 10), nil, decode)
			if err != nil && reasonOf(err) != unknownJob {
				return meta, err
			}
		}
		return meta, nil
	}
}
