// Package webui is the web page of a countmill: increments per second, the counters that move most,
// and the total and curve of each counter. It is a handler of static files. The page's scripts call
// the HTTP API beside it, by relative addresses, so both can be mounted below any prefix:
//
//	mux.Handle("/counters/", http.StripPrefix("/counters", handlerOfCountmill))
//
// The files need no build step: browsers run the modules unchanged. uPlot draws the curves;
// assets/uPlot.LICENSE is its licence.
//
// Nothing on the page is from another host, and Content-Security-Policy forbids it. The page holds
// no data itself, so everybody may load it. Its calls need a token where the server has tokens.
package webui

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed assets
var assets embed.FS

// Paths of the documents. frame.html shows one counter, inside a page of any origin.
const (
	index = "/"
	frame = "/frame.html"
)

// A file is an asset with its headers.
type file struct {
	content   []byte
	mediaType string
	etag      string
	policy    string
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct{ files map[string]file }

// New returns the page.
func New() *Handler {
	h := &Handler{files: make(map[string]file)}
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		panic(err) // the files are part of the program
	}
	for _, e := range entries {
		content, err := assets.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		h.files[pathOf(e.Name())] = newFile(e.Name(), content)
	}
	return h
}

// pathOf puts documents beside the API, and everything else into a folder: a counter's prefix can
// never meet a name there.
func pathOf(name string) string {
	switch {
	case name == "index.html":
		return index
	case strings.HasSuffix(name, ".html"):
		return "/" + name
	}
	return "/page/" + name
}

func newFile(name string, content []byte) file {
	sum := sha256.Sum256(content)
	f := file{content: content, etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	switch path.Ext(name) {
	case ".html":
		f.mediaType = "text/html; charset=utf-8"
		f.policy = policy(pathOf(name) == frame)
	case ".js": // the system's table may say something else
		f.mediaType = "text/javascript; charset=utf-8"
	case ".css":
		f.mediaType = "text/css; charset=utf-8"
	case ".svg":
		f.mediaType = "image/svg+xml"
	default:
		f.mediaType = "text/plain; charset=utf-8"
	}
	return f
}

// policy allows files and calls of this server alone, and no script or style within a document.
func policy(embeddable bool) string {
	ancestors := "'self'"
	if embeddable {
		ancestors = "*"
	}
	return "default-src 'self'; base-uri 'none'; form-action 'none'; object-src 'none'; frame-ancestors " + ancestors
}

// Paths are the paths of all files, in no order.
func (h *Handler) Paths() []string {
	paths := make([]string, 0, len(h.files))
	for p := range h.files {
		paths = append(paths, p)
	}
	return paths
}

// ServeHTTP answers GET and HEAD for Paths, and 404 for anything else. Browsers ask again each
// time whether a file is still the same: a new version of countmill is a new page at once.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := h.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this path takes GET, HEAD", http.StatusMethodNotAllowed)
		return
	}
	header := w.Header()
	header.Set("Content-Type", f.mediaType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-cache")
	header.Set("Etag", f.etag)
	if f.policy != "" {
		header.Set("Content-Security-Policy", f.policy)
	}
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(f.content)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.content) // an error means that the client is gone
	}
}
