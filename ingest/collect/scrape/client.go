package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// accept asks for the one form that Text reads.
const accept = "text/plain;version=0.0.4"

// client asks targets.
type client struct {
	http *http.Client
	cfg  *Config
}

func newClient(cfg *Config) (*client, error) {
	tlsConfig, err := cfg.tls()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		// One connection a target, kept until its next slot. Compression would cost both sides more than it saves on
		// the network of a cluster.
		MaxIdleConnsPerHost: 1, IdleConnTimeout: 3*cfg.Interval + 10*time.Second, DisableCompression: true,
		ReadBufferSize: 32 << 10, WriteBufferSize: 1 << 10,
		TLSClientConfig: tlsConfig, TLSHandshakeTimeout: cfg.Timeout,
	}
	return &client{cfg: cfg, http: &http.Client{
		Transport: transport,
		// A redirect would carry the token to wherever it points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// get reads one answer into buf, which it grows as needed and returns. The time is that at which the answer began. Every
// error is a *Failure.
func (c *client) get(ctx context.Context, url string, buf []byte, now func() time.Time) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return buf, time.Time{}, &Failure{"connect", err}
	}
	req.Header.Set("Accept", accept)
	if c.cfg.TokenFile != "" {
		token, err := os.ReadFile(c.cfg.TokenFile)
		if err != nil {
			return buf, time.Time{}, failf("connect", "read token_file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return buf, time.Time{}, &Failure{reasonOf(err, "connect"), err}
	}
	defer resp.Body.Close()
	at := now()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return buf, at, failf("status", "%s answers %s: %.200q", url, resp.Status, text)
	}
	if resp.ContentLength > int64(c.cfg.MaxBytes) {
		return buf, at, c.tooLarge(url)
	}
	buf, err = readAll(resp.Body, buf[:0], c.cfg.MaxBytes)
	switch {
	case errors.Is(err, errTooLarge):
		return buf, at, c.tooLarge(url)
	case err != nil:
		return buf, at, &Failure{reasonOf(err, "truncated"), fmt.Errorf("read %s: the answer broke off after %d bytes: %w", url, len(buf), err)}
	}
	return buf, at, nil
}

func (c *client) tooLarge(url string) error {
	return failf("too_large", "%s answers with more than %d bytes; raise max_bytes if that is right", url, c.cfg.MaxBytes)
}

func reasonOf(err error, otherwise string) string {
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		return "timeout"
	}
	return otherwise
}

var errTooLarge = errors.New("too large")

// readAll appends all of r to buf, but no more than limit bytes.
func readAll(r io.Reader, buf []byte, limit int) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > limit {
			return buf, errTooLarge
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}
