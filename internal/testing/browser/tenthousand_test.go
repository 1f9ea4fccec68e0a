//go:build linux

package browser

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A store of 10,000 counters: the page holds at most 1,000 rows. No page causes a scan: while all counters count, an open page reads those
// in view and a page of the list.
func TestTenThousandCounters(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("page:/%05d", i)
	}
	m.count(t, names...)
	tb.visit(m.url + "/")
	tb.until(row("page:/00000"))
	for !eval[bool](tb, `document.querySelector('#more').hidden`) {
		before := eval[int](tb, `document.querySelectorAll('.rows li').length`)
		tb.run(`document.querySelector('#more').click()`)
		tb.until(fmt.Sprintf(`document.querySelectorAll('.rows li').length > %d || document.querySelector('#more').hidden`, before))
	}
	if rows := eval[int](tb, `document.querySelectorAll('.rows li').length`); rows < 1000 || rows > 1010 {
		t.Errorf("%d rows are shown, want 1,000 and the busiest", rows)
	}
	tb.visit("about:blank")

	before := m.metric(t, `countmill_entities_read_total{role="reader"}`)
	lists := m.metric(t, "countmill_lists_total")
	began := time.Now()
	tb.visit(m.url + "/#counter=page:/00000")
	for range 8 {
		m.count(t, names...)
		time.Sleep(time.Second)
	}
	tb.until(total("page:/00000", "9"))
	seconds := time.Since(began).Seconds()
	read, listed := m.metric(t, `countmill_entities_read_total{role="reader"}`)-before, m.metric(t, "countmill_lists_total")-lists
	t.Logf("%.0f entities and %.0f lists in %.0f s", read, listed, seconds)
	if most := 200 * (seconds + 2); read > most {
		t.Errorf("the page read %.0f entities in %.0f s, want at most %.0f: 100 counters twice a second", read, seconds, most)
	}
	if most := 2 + seconds/30; listed > most {
		t.Errorf("the page read %.0f lists in %.0f s, want at most %.0f", listed, seconds, most)
	}
}

// metric is a sample of the metrics, by its name and labels.
func (m *mill) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	res, err := http.Get(m.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s in\n%s", name, text)
	return 0
}
