package api

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
)

// webFiles are the page: plain modules, style and one document, with nothing to build and nothing from elsewhere.
//
//go:embed web/*.html web/*.js web/*.css web/*.svg
var webFiles embed.FS

// pageRoutes are the addresses that show the page; its script reads which view is meant. A trailing slash stands for
// every name below.
var pageRoutes = []string{"/{$}", "/racks", "/domains/", "/spills", "/exceptions", "/jobs/", "/slots", "/advice", "/topology", "/report", "/status"}

// pagePolicy lets the page run its own files and ask its own host, and nothing else. Images may be drawn by it: pattern
// swatches are data.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// asset is one file of the page, ready to be sent.
type asset struct {
	body []byte
	kind string
	etag string
}

// page registers the page. Its files are public: what they show, they ask of /v1, where the token is needed.
func (s *Server) page(mux *http.ServeMux) error {
	files, err := fs.ReadDir(webFiles, "web")
	if err != nil {
		return fmt.Errorf("read the page's files: %w", err)
	}
	for _, f := range files {
		body, err := fs.ReadFile(webFiles, "web/"+f.Name())
		if err != nil {
			return fmt.Errorf("read the page's files: %w", err)
		}
		hash := sha256.Sum256(body)
		a := asset{body: body, kind: contentType(f.Name()), etag: `"` + hex.EncodeToString(hash[:12]) + `"`}
		if f.Name() == "index.html" {
			for _, route := range pageRoutes {
				mux.Handle("GET "+route, a)
			}
			continue
		}
		mux.Handle("GET /assets/"+f.Name(), a)
	}
	return nil
}

// contentType does not ask the machine's own tables, which may call a script text.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".html":
		return "text/html; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// ServeHTTP sends the file, or says that the browser's copy still holds: a new version shows at once, since the name
// does not change with it.
func (a asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", a.kind)
	_, _ = w.Write(a.body) // the reader left: nobody to tell
}
