//go:build linux

package browser

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// ink is the part of the plot that is drawn.
const ink = `(() => { const c = document.querySelector('#plot canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / (d.length / 4); })()`

// times is true if there are labels below the plot.
const times = `(() => { const c = document.querySelector('#plot canvas'), y = c.height - 24 * devicePixelRatio; const d = c.getContext('2d').getImageData(0, y, c.width, c.height - y).data; return d.some((v, i) => i % 4 === 3 && v > 0); })()`

// countAt counts deltas of the past.
func (m *mill) countAt(t *testing.T, at time.Time, counter string, delta int64) {
	t.Helper()
	body := fmt.Sprintf(`[{"counter":%q,"delta":%d}]`, counter, delta)
	res, err := http.Post(m.url+"/v1/increments?at="+at.UTC().Format(time.RFC3339), "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("got %s", res.Status)
	}
}

// A recorder remembers the questions of the page to /v1/series.
type recorder struct {
	mu    sync.Mutex
	asked []url.Values
}

func (r *recorder) note(_ http.ResponseWriter, req *http.Request) bool {
	if req.URL.Path == "/v1/series" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, req.URL.Query())
	}
	return false
}

func (r *recorder) last() url.Values {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) == 0 {
		return nil
	}
	return r.asked[len(r.asked)-1]
}

// counted is `up` with increments of the last hour, day, month and year: 7, 20, 300 and 4000. Two more came before
// the rule.
func counted(t *testing.T) *mill {
	t.Helper()
	m := up(t)
	m.count(t, "page:/home", "page:/home", "few:a")
	for _, rule := range []string{"page:*=1m:6h,15m:400d", "few:*=15m:400d"} {
		run(t, "rule", "add", "series", rule, "--server", m.url)
	}
	for range 7 {
		m.count(t, "page:/home")
	}
	m.count(t, "few:a", "few:a", "few:a")
	now := time.Now()
	m.countAt(t, now.Add(-5*time.Hour), "page:/home", 20)
	m.countAt(t, now.Add(-10*24*time.Hour), "page:/home", 300)
	m.countAt(t, now.Add(-200*24*time.Hour), "page:/home", 4000)
	return m
}

// curves is counted behind a recorder, and a tab.
func curves(t *testing.T, allowed ...string) (address string, series *recorder, tb *tab) {
	t.Helper()
	series = new(recorder)
	return below(t, counted(t), "", series.note), series, open(t, allowed...)
}

// The page draws the rows of a real server for each range, and the count without a curve.
func TestCurveOfEachRange(t *testing.T) {
	t.Parallel()
	address, series, tb := curves(t)
	tb.visit(address + "#counter=page:/home&tz=America/St_Johns")
	for _, want := range []struct{ name, sum, step, unit string }{
		{"hour", "7", "1m", "per minute"},
		{"day", "27", "15m", "per quarter hour"},
		{"month", "327", "1d", "per day"},
		{"year", "4,327", "1d", "per day"},
	} {
		tb.do(chromedp.Click("[data-range=" + want.name + "]"))
		tb.sumsSince(want.sum, series)
		tb.until(`document.querySelector('#plot canvas')`)
		tb.until(ink + " > 0.005")
		tb.until(times) // the curve of a year is not drawn again for ten minutes
		tb.until(`document.querySelector('#foot').textContent.endsWith('2 without a curve: counted without a rule.') && document.querySelector('#hint').hidden`)
		if got := series.last(); got.Get("step") != want.step || got.Get("tz") != "America/St_Johns" {
			t.Errorf("%s: the page asked for %v", want.name, got)
		}
		tb.point(want.unit)
	}
	tb.do(chromedp.Click("[data-range=live]"))
	tb.until(`document.querySelector('#foot').textContent === ''`)
}

// sumsSince waits for a sum, and for the moment that it begins with: that of the first row, which is before from.
func (tb *tab) sumsSince(sum string, series *recorder) {
	tb.t.Helper()
	await(tb.t, "a sum of "+sum, func() bool {
		asked := series.last()
		at, err := time.Parse(time.RFC3339, asked.Get("from"))
		zone, zoneErr := time.LoadLocation(asked.Get("tz"))
		if err != nil || zoneErr != nil {
			return false // not asked yet
		}
		since := at.In(zone).Format("Mon, Jan 2, 2006")
		if step, err := time.ParseDuration(asked.Get("step")); err == nil {
			since = at.Truncate(step).In(zone).Format("Jan 2, 15:04")
		}
		return eval[string](tb, `document.querySelector('#readout').textContent`) == sum+" since "+since
	})
}

// point points at the middle of the plot until the readout has the unit of a value.
func (tb *tab) point(unit string) {
	tb.t.Helper()
	box := eval[[]float64](tb, `(() => { const b = document.querySelector('#plot .u-over').getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()`)
	tb.do(chromedp.MouseEvent("mouseMoved", box[0], box[1]))
	tb.until(fmt.Sprintf(`document.querySelector('#readout').textContent.includes(%q)`, unit))
	tb.do(chromedp.MouseEvent("mouseMoved", 1, 1))
	tb.until(fmt.Sprintf(`!document.querySelector('#readout').textContent.includes(%q)`, unit))
}

// A rule without minutes: the last hour is drawn by the quarter hour.
func TestHourWithoutMinutes(t *testing.T) {
	t.Parallel()
	address, series, tb := curves(t, "400") // the answer to the question for minutes
	tb.visit(address + "#counter=few:a&range=hour&tz=UTC")
	tb.sumsSince("3", series)
	tb.until(`document.querySelector('#plot canvas') && document.querySelector('#hint').hidden`)
	if got := series.last().Get("step"); got != "15m" {
		t.Errorf("the rows are of %s, want 15m", got)
	}
	tb.point("per quarter hour")
	tb.do(chromedp.Click("[data-range=day]"))
	tb.sumsSince("3", series)
}

// A zone that is typed into its field is that of the curve, of the address and of the times.
func TestZoneTyped(t *testing.T) {
	t.Parallel()
	address, series, tb := curves(t)
	tb.visit(address + "#counter=page:/home&range=month&tz=UTC")
	tb.until(`document.querySelector('#readout').textContent.startsWith('327 since ')`)
	typed := func(zone string) {
		tb.run(`document.querySelector('#zone').focus(); document.querySelector('#zone').select()`)
		tb.press(zone)
		tb.press(kb.Enter)
	}
	typed("Asia/Nowhere")
	tb.until(`document.querySelector('#zone').getAttribute('aria-invalid') === 'true'`)
	typed("Asia/Kathmandu")
	tb.until(`document.querySelector('#zone').getAttribute('aria-invalid') === 'false' && new URLSearchParams(location.hash.slice(1)).get('tz') === 'Asia/Kathmandu'`)
	tb.until(`document.querySelector('#readout').textContent.startsWith('327 since ')`)
	if got := series.last().Get("tz"); got != "Asia/Kathmandu" {
		t.Errorf("the page asked for rows of %q", got)
	}
	kathmandu, err := time.LoadLocation("Asia/Kathmandu")
	if err != nil {
		t.Fatal(err)
	}
	shown := eval[string](tb, `document.querySelector('#as-of').textContent`)
	text, err := time.Parse("15:04:05", shown[max(0, len(shown)-8):])
	if err != nil {
		t.Fatalf("the moment of the total is %q", shown)
	}
	now := time.Now().In(kathmandu)
	if ago := time.Duration((now.Hour()-text.Hour()+24)%24)*time.Hour + time.Duration(now.Minute()-text.Minute())*time.Minute; ago < 0 || ago > 10*time.Minute {
		t.Errorf("the moment of the total is %q, and it is %s in Kathmandu", shown, now.Format(time.TimeOnly))
	}
	tb.do(chromedp.Reload())
	tb.until(`document.querySelector('#zone').value === 'Asia/Kathmandu'`)
}

// Each figure of the pipeline and of a counter gets a value.
func TestFigures(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	tb.visit(m.url + "/#counter=page:/home")
	stop := make(chan struct{})
	var counting sync.WaitGroup
	defer counting.Wait()
	defer close(stop)
	counting.Go(func() {
		for {
			m.post(t, []byte(`[{"counter":"page:/home"},{"counter":"page:/home","id":"once"}]`))
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	for id, want := range map[string]string{
		"rate": `^[\d.,]+$`, "lag": `^[\d.]+ (ms|s)$`, "commits": `^[\d.,]+$`, "per-write": `^[\d.,]+$`, "duplicates": `^[\d,]+$`, "dead": `^0$`, "alive": `^1$`,
		"shards": `^1 shard$`, "as-of": `^as of \d\d:\d\d:\d\d$`, "total": `^[\d,]+$`,
	} {
		tb.until(fmt.Sprintf(`new RegExp(%q).test(document.querySelector('#%s').textContent)`, want, id))
	}
	tb.until(`Number(document.querySelector('#commits').textContent) > 0 && document.querySelector('#rate').textContent !== '0'`)
	tb.until(`!document.querySelector('#pulse .wrong')`)
}

// A frame shows the total and the curve of its range, in its zone and its theme.
func TestFrame(t *testing.T) {
	t.Parallel()
	address, series, tb := curves(t)
	tb.size(480, 280)
	papers := map[string]bool{}
	for _, theme := range []string{"light", "dark"} {
		tb.prefers(map[string]string{"light": "dark", "dark": "light"}[theme]) // the frame does not go by it
		tb.visit("about:blank")
		tb.visit(address + "frame.html#counter=page:/home&range=day&tz=Asia/Kathmandu&theme=" + theme)
		tb.until(`document.querySelector('#name').textContent === 'page:/home' && document.querySelector('#total').textContent === '4,329'`)
		tb.sumsSince("27", series)
		tb.until(ink + " > 0.005")
		tb.until(times) // the curve of a year is not drawn again for ten minutes
		tb.until(`document.querySelector('#foot').textContent.endsWith('2 without a curve: counted without a rule.')`)
		if got := series.last(); got.Get("tz") != "Asia/Kathmandu" || got.Get("step") != "15m" {
			t.Errorf("the frame asked for %v", got)
		}
		tb.fits("the frame")
		papers[eval[string](tb, `getComputedStyle(document.documentElement).backgroundColor`)] = true
	}
	if len(papers) != 2 {
		t.Errorf("both themes have the background %v", papers)
	}
	tb.visit("about:blank")
	tb.visit(address + "frame.html#counter=page:/home")
	tb.until(`document.querySelector('#readout').textContent.endsWith('per second now') && ` + ink + ` > 0`)
}

// A frame says why it has no total, or no news of it, and goes on when there is one.
func TestFrameWithoutNews(t *testing.T) {
	t.Parallel()
	var asked, ended atomic.Int32
	var says atomic.Value // what each stream says now, "gone": the server breaks it; "": it says nothing
	says.Store("")
	address, tb := below(t, up(t), "", func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/watch" {
			return false
		}
		asked.Add(1)
		defer ended.Add(1)
		for said := ""; r.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
			now := says.Load().(string)
			if now == "gone" {
				panic(http.ErrAbortHandler)
			}
			if now != said {
				_, _ = io.WriteString(w, now)
				_ = http.NewResponseController(w).Flush()
				said = now
			}
		}
		return true
	}), open(t, "v1/watch")
	is := func(total, asOf, readout string) {
		t.Helper()
		tb.until(fmt.Sprintf(`document.querySelector('#total').textContent === %q && /^%s$/.test(document.querySelector('#as-of').textContent) && /^%s$/.test(document.querySelector('#readout').textContent)`, total, asOf, readout))
	}
	totals := func(total string) {
		says.Store(fmt.Sprintf("event: totals\ndata: "+`{"totals":[{"counter":"a","total":%s,"as_of":"2026-11-22T10:00:00Z","exists":true,"shards":1}]}`+"\n\n", total))
	}
	// The time that a stream may say nothing is shorter here.
	if _, err := chromedp.Call(tb.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.silence = 100; const real = setTimeout; window.setTimeout = (f, ms) => real(f, ms === 40000 ? silence : ms)`,
	}); err != nil {
		t.Fatal(err)
	}
	const away = `The server does not answer\.`
	tb.size(480, 280)
	tb.visit(address + "frame.html#counter=a&tz=UTC")
	is("–", away, "")
	tb.run(`window.silence = 40000`)
	totals(`null,"error":"urn:countmill:problem:overflow"`)
	is("–", "no total: it does not fit 64 bits", "")
	before := asked.Load()
	says.Store("event: problem\ndata: " + `{"status":503,"detail":"the store is away"}` + "\n\n")
	is("–", `The store is away\.`, "")
	totals(`"5"`)
	is("5", "(as of|unchanged since) 10:00:00", ".* per second now|Watching .*")
	if now := asked.Load(); now != before {
		t.Errorf("the frame has connected %d times more, want the same stream", now-before)
	}
	says.Store("gone")
	is("5", away, "")
	totals(`"6"`)
	is("6", "(as of|unchanged since) 10:00:00", ".* per second now|Watching .*")
	tb.fits("the frame")
	gone := ended.Load()
	says.Store("event: totals\ndata: {\n\n")
	await(t, "the end of a stream that nobody reads", func() bool { return ended.Load() > gone })
}

// A page of another origin contains the frame, and not the page itself.
func TestFrameInAnotherPage(t *testing.T) {
	t.Parallel()
	var paths sync.Map
	address := below(t, counted(t), "", func(_ http.ResponseWriter, r *http.Request) bool {
		paths.Store(r.URL.Path, true)
		return false
	})
	var content atomic.Value
	other := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><iframe src="%s%s" width="480" height="280"></iframe>`, address, content.Load())
	}))
	content.Store("#counter=page:/home&range=day")
	tb := open(t, "frame-ancestors", "Content Security Policy")
	tb.visit(strings.Replace(other, "127.0.0.1", "localhost", 1)) // another site
	await(t, "the call of the page", func() bool { _, ok := paths.Load("/"); return ok })
	content.Store("frame.html#counter=page:/home&range=day")
	tb.do(chromedp.Reload())
	await(t, "the call of the curve", func() bool { _, ok := paths.Load("/v1/series"); return ok })
	if _, ok := paths.Load("/page/app.js"); ok {
		t.Error("another page contains the page")
	}
}
