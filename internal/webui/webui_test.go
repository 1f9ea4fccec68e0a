package webui_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/webui"
)

func get(t *testing.T, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	webui.New().ServeHTTP(rec, req)
	return rec
}

func TestEveryFileIsServed(t *testing.T) {
	t.Parallel()
	types := map[string]string{
		"/": "text/html; charset=utf-8", "/frame.html": "text/html; charset=utf-8", "/page/app.js": "text/javascript; charset=utf-8",
		"/page/page.css": "text/css; charset=utf-8", "/page/mark.svg": "image/svg+xml", "/page/uPlot.LICENSE": "text/plain; charset=utf-8",
	}
	paths := webui.New().Paths()
	files, err := fs.ReadDir(os.DirFS("assets"), ".")
	if err != nil || len(paths) != len(files) {
		t.Errorf("%d paths for %d files (%v)", len(paths), len(files), err)
	}
	for path, want := range types {
		if !slices.Contains(paths, path) {
			t.Errorf("there is no %s", path)
		}
		rec := get(t, "GET", path)
		if got := rec.Header().Get("Content-Type"); rec.Code != 200 || got != want || rec.Body.Len() == 0 {
			t.Errorf("%s: got %d %s with %d bytes, want 200 %s", path, rec.Code, got, rec.Body.Len(), want)
		}
		etag := rec.Header().Get("Etag")
		if again := get(t, "GET", path, "If-None-Match", etag); again.Code != 304 || again.Body.Len() != 0 {
			t.Errorf("%s asked for again: got %d with %d bytes, want 304", path, again.Code, again.Body.Len())
		}
		if head := get(t, "HEAD", path); head.Code != 200 || head.Body.Len() != 0 {
			t.Errorf("HEAD %s: got %d with %d bytes", path, head.Code, head.Body.Len())
		}
	}
	if rec := get(t, "POST", "/"); rec.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /: got %d, want 405", rec.Code)
	}
	for _, path := range []string{"/page/", "/assets/app.js", "/page/../page.go"} {
		if rec := get(t, "GET", path); rec.Code != 404 {
			t.Errorf("%s: got %d, want 404", path, rec.Code)
		}
	}
}

// Only the frame may be inside pages of other origins.
func TestPolicy(t *testing.T) {
	t.Parallel()
	for path, ancestors := range map[string]string{"/": "'self'", "/frame.html": "*"} {
		got := get(t, "GET", path).Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(got, "default-src 'self'; ") || !strings.HasSuffix(got, "frame-ancestors "+ancestors) || strings.Contains(got, "unsafe") {
			t.Errorf("%s: the policy is %q", path, got)
		}
	}
}

// The page works below any prefix and without the outside: every address is relative.
func TestDocumentsNameNoOtherHost(t *testing.T) {
	t.Parallel()
	address := regexp.MustCompile(`(?:href|src)="([^"]*)"|(?:from|import) "([^"]*)"`)
	inline := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son[a-z]+=`)
	h, found := webui.New(), 0
	for _, path := range h.Paths() {
		if strings.HasPrefix(path, "/page/uPlot") {
			continue
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		text := rec.Body.String()
		for _, m := range address.FindAllStringSubmatch(text, -1) {
			found++
			if to := m[1] + m[2]; strings.HasPrefix(to, "/") || strings.Contains(to, "//") {
				t.Errorf("%s names %s, want a relative address", path, to)
			}
		}
		if bad := inline.FindString(text); bad != "" && strings.HasSuffix(rec.Header().Get("Content-Type"), "html; charset=utf-8") {
			t.Errorf("%s has %s, which the policy forbids", path, bad)
		}
		if strings.Contains(text, "innerHTML") || strings.Contains(text, "insertAdjacentHTML") {
			t.Errorf("%s parses HTML: names of counters must stay text", path)
		}
	}
	if found < 20 {
		t.Errorf("found %d addresses only", found)
	}
}
