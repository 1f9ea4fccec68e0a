//go:build linux

package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// places is a script whose value is the content of the panel Top.
const places = `[...document.querySelectorAll('#top-rows li')].map((l) => l.innerText.replaceAll('\n', ' ')).join()`

// The panel Top asks while it is open, shows names as text, and says what to do without an index or a series.
func TestTop(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t, "404")
	run(t, "rule", "add", "series", "=site:*=15m:40d", "--server", m.url)
	strange := "page:b:" + script
	m.count(t, "page:a:x", "page:a:x", "page:a:x", strange, strange, "page:a:y")
	tb.visit(m.url + "/")
	tb.until(total("page:a:x", "3"))
	if tb.run(`document.querySelector('#top-part summary').focus()`); eval[string](tb, places) != "" {
		t.Error("the closed panel has rows")
	}
	tb.press("\r")
	tb.until(`document.querySelector('#top-part').open && document.querySelector('#top-note pre')?.textContent.includes('countmill index create')`)
	height := eval[float64](tb, `document.querySelector('#top-part').offsetHeight`)
	run(t, "index", "create", "sites", "--match", "page:{site}:*", "--group", "site:{site}", "--wait", "--server", m.url)
	tb.do(chromedp.Reload())
	tb.until(`document.querySelector('#group-part .rate')?.textContent === 'serving'`)
	tb.do(chromedp.Click(`#top-part summary`))
	tb.until(places + fmt.Sprintf(` === '1 page:a:x 3,2 %s 2,3 page:a:y 1'`, strange))
	tb.until(`document.querySelector('#top-foot').textContent.startsWith('complete as of ') && location.hash.includes('top=sites')`)
	if got := eval[float64](tb, `document.querySelector('#top-part').offsetHeight`); got != height {
		t.Errorf("the panel has %v px with rows and %v px without an index", got, height)
	}
	m.count(t, "page:a:y", "page:a:y", "page:a:y")
	tb.until(places + ` .startsWith('1 page:a:y 4,2 page:a:x 3')`)
	tb.choose("#top-of", "groups")
	tb.until(places + ` === '1 =site:a 7,2 =site:b 2'`)
	tb.choose("#top-window", "today")
	tb.until(places + ` === '1 =site:a 3'`)
	tb.choose("#top-of", "")
	tb.until(`document.querySelector('#top-note').textContent.includes('countmill rule add series') && document.querySelectorAll('#top-rows li').length === 0`)
	tb.choose("#top-window", "")
	tb.until(places + ` .startsWith('1 page:a:y 4')`)
	tb.run(`document.querySelector('#top-rows a').focus()`)
	tb.press("\r")
	tb.until(`document.querySelector('#name').textContent === 'page:a:y' && location.hash.includes('top=sites')`)
	tb.do(chromedp.Reload())
	tb.until(places + ` .startsWith('1 page:a:y 4')`)
	tb.fitsAll()
}

// choose chooses a value of a select, as a person does.
func (tb *tab) choose(id, value string) {
	tb.t.Helper()
	tb.run(fmt.Sprintf(`document.querySelector(%q).value = %q; document.querySelector(%q).dispatchEvent(new Event('change'))`, id, value, id))
}
