//go:build linux

package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const script = "<script>alert(1)</script>"

// An open page shows the first counters.
func TestFirstCounters(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	tb.visit(m.url + "/")
	tb.until(`document.querySelector('#welcome pre').textContent.includes('/v1/increments')`)
	m.count(t, "page:/home", "page:/about", "page:/home")
	tb.until(total("page:/home", "2"))
	tb.until(total("page:/about", "1"))
	tb.until(`!document.querySelector('#welcome') && document.querySelector('#state-text').textContent === 'all well'`)
}

// A total moves on the page, in the list and beside it.
func TestTotalsMove(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	m.count(t, "page:/home", "page:/about")
	tb.visit(m.url + "/#counter=page:/home")
	tb.until(total("page:/home", "1"))
	tb.until(`document.querySelector('#total').textContent === '1'`)
	for i := 2; i < 6; i++ {
		m.count(t, "page:/home")
		tb.until(fmt.Sprintf(`document.querySelector('#total').textContent === '%d'`, i))
		tb.until(total("page:/home", fmt.Sprint(i)))
	}
	// Totals beyond 2^53 keep their digits.
	m.post(t, []byte(`[{"counter":"big","delta":9007199254740991},{"counter":"big","delta":9007199254740991},{"counter":"big","delta":-1}]`))
	tb.until(total("big", "18,014,398,509,481,981"))
}

// A counter that does not exist is no 0: its name may be mistyped. Its first increment shows it.
func TestACounterThatDoesNotExist(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	m.count(t, "page:/home")
	tb.visit(m.url + "/#counter=page:/hmoe")
	tb.until(`document.querySelector('#as-of').textContent.startsWith('No counter is named so.')`)
	if got := eval[string](tb, `document.querySelector('#total').textContent`); got != "–" {
		t.Errorf("the total is %q, want –", got)
	}
	m.count(t, "page:/hmoe")
	tb.until(`document.querySelector('#total').textContent === '1' && !document.querySelector('#as-of').textContent.startsWith('No counter')`)
}

// The busiest counters come first, and then all names in order.
func TestBusiest(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("a:%02d", i))
	}
	for range 3000 {
		names = append(names, "z:busy")
	}
	m.count(t, names...)
	tb.visit(m.url + "/")
	tb.until(`document.querySelector('#busy .name')?.textContent === 'z:busy'`)
	tb.until(`document.querySelectorAll('.rows li').length === 41`)
	if got := eval[int](tb, `document.querySelectorAll('#busy li').length`); got != 10 {
		t.Errorf("%d busy counters are shown, want 10", got)
	}
	tb.until(`Number(document.querySelector('#per-write').textContent) > 1`)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	m := up(t)
	release := make(chan struct{})
	var overviews atomic.Int32
	address, tb := below(t, m, "", func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v1/overview" {
			overviews.Add(1)
		}
		switch r.URL.Query().Get("prefix") {
		case "shop:":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case "away":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"detail":"not now"}`)
			return true
		}
		return false
	}), open(t, "503")
	var names []string
	for i := range 120 {
		names = append(names, fmt.Sprintf("page:/%03d", i))
	}
	m.count(t, append(names, "shop:a", script, strings.Repeat("x", 500))...)
	tb.visit(address)
	tb.until(total("page:/000", "1"))
	search := func(prefix string) {
		tb.run(`document.querySelector('#search').value = ''; document.querySelector('#search').focus()`)
		tb.press(prefix)
	}
	search("shop")
	tb.until(`document.querySelectorAll('.rows li').length === 1 && ` + total("shop:a", "1"))
	tb.until(`location.hash === '#q=shop'`)
	search("nothing begins so")
	tb.until(`document.querySelector('#list-note').textContent === 'No counter begins with this.' || document.querySelectorAll('.rows li').length === 0`)
	tb.press(kb.Escape)
	tb.until(`document.querySelector('#search').value === '' && ` + row("page:/000"))
	tb.visit(address + "#q=page:")
	tb.do(chromedp.Reload())
	const first = `document.querySelectorAll('.rows li').length === 75 && !document.querySelector('#more').hidden`
	tb.until(first)
	search("shop:")
	tb.until(`location.hash === '#q=shop%3A'`)
	tb.run(`const now = Date.now; Date.now = () => now() + 20000`) // the busiest are put in order again
	before := overviews.Load()
	await(t, "the busiest in another order", func() bool { return overviews.Load() >= before+3 })
	if !eval[bool](tb, `document.querySelector('#more').hidden`) {
		t.Error("before the answer to a search, its names can be added to those of the last one")
	}
	close(release)
	tb.until(`document.querySelectorAll('.rows li').length === 1`)
	search("away")
	tb.until(`document.querySelector('#list-note').innerText === 'Not now.' && document.querySelector('.rows a').offsetParent === null`)
	search("page:")
	tb.until(first)
	tb.do(chromedp.Click("#more"))
	tb.until(`document.querySelectorAll('.rows li').length === 120 && document.querySelector('#more').hidden`)
}

// Names are text, with any content.
func TestStrangeNames(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	long := strings.Repeat("long/", 100)
	odd := []string{script, long, `"'\><img src=x onerror=alert(1)>`, "é/日本 %2F?#&+", "a,b"}
	m.count(t, odd...)
	for _, width := range []int64{1280, 360} {
		tb.size(width, 800)
		tb.visit(m.url + "/")
		for _, name := range odd {
			tb.until(row(name))
		}
		tb.fits(fmt.Sprintf("at %d px the list", width))
		for _, name := range odd {
			tb.visit(m.url + "/#" + url.Values{"counter": {name}}.Encode())
			tb.until(fmt.Sprintf(`document.querySelector('#name').textContent === %q && document.querySelector('#total').textContent === '1'`, name))
			tb.fits(fmt.Sprintf("at %d px the counter %.20q", width, name))
		}
	}
	if got := eval[int](tb, `document.querySelectorAll('main script, main img').length`); got != 0 {
		t.Errorf("%d elements were made of a name", got)
	}
}

func TestPhone(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	m.post(t, []byte(`[{"counter":"big","delta":9007199254740991},{"counter":"page:/home"}]`))
	tb.size(360, 740)
	tb.visit(m.url + "/")
	tb.until(total("big", "9,007,199,254,740,991"))
	tb.fits("the list")
	tb.run(row("big") + ".click()")
	tb.until(`document.querySelector('#total').textContent === '9,007,199,254,740,991'`)
	tb.fits("the counter")
	if !eval[bool](tb, `getComputedStyle(document.querySelector('.browse')).display === 'none'`) {
		t.Error("the list is beside the counter")
	}
	tb.do(chromedp.Click("#back"))
	tb.until(`getComputedStyle(document.querySelector('.browse')).display !== 'none'`)
}

// The page goes by the system's theme.
func TestThemes(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	m.count(t, "a")
	tb.visit(m.url + "/")
	const paper = `getComputedStyle(document.documentElement).backgroundColor`
	tb.prefers("light")
	light := eval[string](tb, paper)
	tb.prefers("dark")
	tb.until(fmt.Sprintf("%s !== %q", paper, light))
	tb.prefers("light")
	tb.until(fmt.Sprintf("%s === %q", paper, light))
}

// Nothing moves while the page loads and its figures come in, and when a counter is chosen.
func TestNothingShifts(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	run(t, "rule", "add", "series", "*=1m:6h,15m:400d", "--server", m.url)
	m.count(t, "a", "b", "c")
	for _, width := range []int64{1280, 360} {
		tb.size(width, 740)
		for _, from := range []string{"", "#counter=a", "#counter=a&range=day"} {
			where := fmt.Sprintf("%d px, %q", width, from)
			tb.visit("about:blank")
			tb.visit(m.url + "/" + from)
			tb.until(`document.querySelectorAll('.rows li').length === 3`)
			tb.do(chromedp.Reload())
			tb.run(`window.shifts = []; new PerformanceObserver((l) => { for (const e of l.getEntries()) if (!e.hadRecentInput) shifts.push([e.value, ...e.sources.map((s) => s.node?.id || s.node?.className || s.node?.nodeName)].join(" ")) })
				.observe({ type: "layout-shift", buffered: true })`)
			tb.until(total("b", "1"))
			time.Sleep(3 * time.Second)
			tb.wantStill(where)
			if from != "" && width < 900 {
				continue // no other counter can be chosen
			}
			if width < 900 { // the counter replaces the list at once: what follows a person's click does not count
				tb.run(row("b") + ".focus()")
				tb.press(kb.Enter)
			} else {
				tb.run(row("b") + ".click()")
			}
			tb.until(`document.querySelector('#total').textContent === '1' && document.querySelector('#plot canvas')`)
			time.Sleep(2 * time.Second)
			tb.wantStill(where + ", b chosen")
			tb.run(`document.querySelector('[data-range=hour]').click()`)
			tb.until(`document.querySelector('#readout').textContent.startsWith('1 since ')`)
			time.Sleep(time.Second)
			tb.wantStill(where + ", its hour")
		}
	}
}

// wantStill fails if something has moved since the last call.
func (tb *tab) wantStill(where string) {
	tb.t.Helper()
	var sum float64
	shifts := eval[[]string](tb, "shifts.splice(0)")
	for _, shift := range shifts {
		var v float64
		fmt.Sscan(shift, &v)
		sum += v
	}
	if sum > 0.02 {
		tb.t.Errorf("%s: the layout shifted by %.3f, want at most 0.02: %q", where, sum, shifts)
	}
}

func TestBelowAPrefix(t *testing.T) {
	t.Parallel()
	m := up(t)
	address, tb := below(t, m, "/internal/counters", nil), open(t) // the tab closes before the server
	m.count(t, "page:/home")
	tb.visit(address + "#counter=page:/home")
	tb.until(total("page:/home", "1"))
	m.count(t, "page:/home")
	tb.until(total("page:/home", "2"))
}

// Without a rule the page shows how to add one.
func TestCurveWithoutARule(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t, "404")
	m.count(t, "page:/home")
	tb.visit(m.url + "/#counter=page:/home&range=month")
	tb.until(`document.querySelector('#hint pre')?.textContent === "countmill rule add series 'page:*=1m:6h,15m:400d'"`)
	tb.do(chromedp.Click("[data-range=live]"))
	tb.until(`document.querySelector('#hint').hidden && document.querySelector('#plot canvas')`)
}
