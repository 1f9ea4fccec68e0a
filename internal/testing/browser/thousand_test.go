//go:build linux

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// A thousand counters count while the page shows one of them. Afterwards each total is the number of its increments,
// the rows of /v1/series sum to it, and the page shows it.
// COUNTMILL_BROWSER_LASTS is the time of counting, 5s if it is not set; COUNTMILL_SCREENSHOTS gets a picture.
func TestThousandSeries(t *testing.T) {
	t.Parallel()
	lasts := 5 * time.Second
	if text := os.Getenv("COUNTMILL_BROWSER_LASTS"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	tb := open(t)
	defer tb.close()
	m := up(t)
	run(t, "rule", "add", "series", "*=1m:6h,15m:400d", "--server", m.url)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("page:/%03d", i)
	}
	tb.size(1280, 860)
	tb.visit(m.url + "/#counter=" + names[0])
	sent := make(map[string]int64)
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, uint64(len(names)-1))
	began := time.Now()
	for round := 0; time.Since(began) < lasts; round++ {
		batch := names // each once, and then some often
		if round > 0 {
			batch = make([]string, 500)
			for i := range batch {
				batch[i] = names[zipf.Uint64()]
			}
		}
		m.count(t, batch...)
		for _, name := range batch {
			sent[name]++
		}
		time.Sleep(50 * time.Millisecond)
	}
	tb.until(fmt.Sprintf(`%s?.querySelector(".count").textContent.replace(/\D/g, "") === "%d"`, row(names[0]), sent[names[0]]))
	if dir := os.Getenv("COUNTMILL_SCREENSHOTS"); dir != "" {
		tb.screenshot(filepath.Join(dir, "thousand.png"))
	}
	all := int64(0)
	for first := 0; first < len(names); first += 100 {
		some := names[first : first+100]
		totals, sums := make(map[string]int64), make(map[string]int64)
		var answer struct {
			Totals []struct {
				Counter string
				Total   int64
			}
		}
		m.read(t, "/v1/totals", url.Values{"counter": some, "max_staleness": {"0s"}}, &answer)
		for _, one := range answer.Totals {
			totals[one.Counter] = one.Total
		}
		var rows []struct {
			Counter string
			Value   int64
		}
		m.read(t, "/v1/series", url.Values{"counter": some, "step": {"1m"}, "from": {began.Add(-time.Minute).UTC().Format(time.RFC3339)}, "to": {time.Now().Add(time.Minute).UTC().Format(time.RFC3339)}}, &rows)
		for _, row := range rows {
			sums[row.Counter] += row.Value
		}
		for _, name := range some {
			if totals[name] != sent[name] || sums[name] != sent[name] {
				t.Errorf("%s: the total is %d, the rows sum to %d, and %d were sent", name, totals[name], sums[name], sent[name])
			}
			all += sums[name]
		}
	}
	t.Logf("%d increments of %d counters in %s: each total is the sum of its rows", all, len(names), time.Since(began).Round(time.Second))
}

// read decodes the answer to a GET.
func (m *mill) read(t *testing.T, path string, query url.Values, into any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: got %d, %v", path, res.StatusCode, err)
	}
}

// screenshot writes a picture of the tab.
func (tb *tab) screenshot(path string) {
	tb.t.Helper()
	png, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		tb.t.Fatal(err)
	}
	if err := os.WriteFile(path, png, 0o644); err != nil {
		tb.t.Fatal(err)
	}
}
