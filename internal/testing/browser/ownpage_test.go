//go:build linux

package browser

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The scripts of docs/howto/page.md are a page of another origin, as they are: totals and rates over the
// stream by fetch, the same by EventSource, and the curve of the last hour.
func TestOwnPage(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../../docs/howto/page.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(scripts) != 3 {
		t.Fatalf("the document has %d scripts, want the stream, EventSource and the curve", len(scripts))
	}
	byFetch, bySource, curve := scripts[0][1], scripts[1][1], scripts[2][1]
	// EventSource takes the place of stream and of the last lines.
	bySource = byFetch[:strings.Index(byFetch, "async function stream")] + bySource

	server := "" // known later: the mill has to know the page's origin
	page := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		totals := byFetch
		if r.URL.Path == "/source" {
			totals = bySource
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, strings.ReplaceAll(fmt.Sprintf(`<!doctype html><link rel="icon" href="data:,">
<pre id="totals"></pre><svg id="curve" viewBox="0 0 600 100"></svg>
<script type="module">%s</script><script type="module">%s</script>`, totals, curve), "http://127.0.0.1:8080", server))
	}))
	m, tb := up(t, "--cors-origin", page), open(t)
	run(t, "rule", "add", "series", "page:*=1m:6h,15m:400d", "--server", m.url)
	server = m.url
	m.count(t, "page:/home", "page:/about")
	m.countAt(t, time.Now().Add(-10*time.Minute), "page:/home", 7)
	total := 8
	for _, path := range []string{"/fetch", "/source"} {
		tb.visit(page + path)
		tb.until(fmt.Sprintf(`totals.textContent === "page:/about 1 (0/s)\npage:/home %d (0/s)"`, total))
		m.count(t, "page:/home")
		total++
		tb.until(fmt.Sprintf(`/home %d \([\d.]*[1-9][\d.]*\/s\)/.test(totals.textContent)`, total))
		tb.until(fmt.Sprintf(`totals.textContent.endsWith("page:/home %d (0/s)")`, total))
		// The highest of 60 minutes is ten minutes ago, or more if the machine is slow.
		tb.until(`(() => { const y = [...curve.querySelector("polyline").points].map((p) => p.y); return y.length === 60 && y.filter((v) => v === 0).length === 1 && y.indexOf(0) > 40 && y.indexOf(0) <= 50; })()`)
	}
}
