//go:build linux

package browser

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// deltas is a script whose value is the deltas of the panel Journal.
const deltas = `[...document.querySelectorAll('#journal-rows .delta')].map((d) => d.textContent).join()`

// clicks is a script that presses a button of the panel, which must be enabled.
func clicks(tb *tab, button string) {
	tb.t.Helper()
	tb.until(fmt.Sprintf(`!document.querySelector('#journal-%s').disabled`, button))
	tb.do(chromedp.Click("#journal-" + button))
}

// numbered is the deltas of a page, from a number down.
func numbered(from, to int) (s string) {
	for i := from; i >= to; i-- {
		if s != "" {
			s += ","
		}
		s += fmt.Sprintf("+%d", i)
	}
	return s
}

// The panel Journal goes to older and newer entries and to the newest ones, follows new ones, and keeps its page in the
// address. Times are in the page's zone.
func TestJournal(t *testing.T) {
	t.Parallel()
	m, tb := up(t), open(t)
	run(t, "rule", "add", "journal", "billing:*=30d", "--server", m.url)
	is := func(want string) {
		t.Helper()
		tb.until(fmt.Sprintf(`%s === %q`, deltas, want))
	}
	m.post(t, []byte(`{"counter":"page:/home"}`))
	for i := 1; i <= 45; i++ {
		m.post(t, fmt.Appendf(nil, `{"counter":"billing:a","delta":%d,"id":"o-%d"}`, i, i))
	}
	tb.visit(m.url + "/#counter=billing:a&tz=UTC")
	tb.until(`document.querySelector('#total').textContent === '1,035'`)
	if tb.until(`!document.querySelector('#journal-part').open`); eval[string](tb, deltas) != "" {
		t.Error("the closed panel has entries")
	}
	tb.do(chromedp.Click(`#journal-part summary`))
	is(numbered(45, 26))
	tb.until(`document.querySelector('#journal-foot').textContent.startsWith('complete up to ') && location.hash.includes('journal=newest')`)
	clicks(tb, "older")
	is(numbered(25, 6))
	clicks(tb, "older")
	is(numbered(5, 1))
	tb.until(`document.querySelector('#journal-older').disabled`)
	first := eval[string](tb, `[...document.querySelectorAll('#journal-rows .part')].pop().title.split('key ')[1]`)
	tb.do(chromedp.Reload())
	is(numbered(5, 1))
	clicks(tb, "newer")
	is(numbered(25, 6))
	// A page without entries skips none beside it.
	tb.run(fmt.Sprintf(`location.hash = 'counter=billing:a&tz=UTC&journal=before+%s'`, first))
	tb.until(deltas + ` === '' && !document.querySelector('#journal-newer').disabled`)
	clicks(tb, "newer")
	is(numbered(20, 1))
	clicks(tb, "newer")
	is(numbered(40, 21))
	clicks(tb, "newer")
	is(numbered(45, 41))
	tb.until(`document.querySelector('#journal-newer').disabled`)
	m.post(t, []byte(`{"counter":"billing:a","delta":-7,"id":"o-46"}`))
	clicks(tb, "newest")
	is("−7," + numbered(45, 27))
	m.post(t, []byte(`{"counter":"billing:a","delta":8,"id":"o-47"}`))
	is("+8,−7," + numbered(45, 28)) // without a click
	hour := func() string {
		return eval[string](tb, `document.querySelector('#journal-rows .when').textContent`)
	}
	utc := hour()
	tb.run(`location.hash = 'counter=billing:a&tz=Asia/Kolkata&journal=newest'`)
	tb.until(fmt.Sprintf(`document.querySelector('#journal-rows .when') && document.querySelector('#journal-rows .when').textContent !== %q`, utc))
	tb.fitsAll()
	tb.size(1280, 860)
	tb.run(row("page:/home") + `.click()`)
	tb.until(`document.querySelector('#journal-note pre')?.textContent === "countmill rule add journal 'page:/home=400d'"`)
	// The next answer leaves the command as it is: somebody may be copying it.
	tb.run(`document.querySelector('#journal-note pre').kept = document.querySelector('#journal-foot').textContent`)
	tb.until(`document.querySelector('#journal-foot').textContent !== document.querySelector('#journal-note pre').kept`)
	if !eval[bool](tb, `'kept' in document.querySelector('#journal-note pre')`) {
		t.Error("an answer without news replaced the command")
	}
}

// A token for totals alone does not show who counted.
func TestJournalNeedsAdmin(t *testing.T) {
	t.Parallel()
	find(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	secret := run(t, "token", "new", "viewer", "--scope", "read,publish", "--file", tokens)
	admin := run(t, "token", "new", "boss", "--scope", "read,publish,admin", "--file", tokens)
	m := up(t, "--tokens", tokens)
	run(t, "rule", "add", "journal", "billing:*=30d", "--server", m.url, "--token", admin)
	m.token = admin
	m.post(t, []byte(`{"counter":"billing:a","delta":5,"id":"o-1"}`))
	tb := open(t, "401", "403")
	tb.visit(m.url + "/#counter=billing:a&journal=newest&token=" + secret)
	tb.until(`document.querySelector('#journal-note').textContent.includes('needs the scope admin') && !document.querySelector('#ask').open`)
	tb.do(chromedp.Click("#leave"))
	tb.until(`document.querySelector('#ask').open`)
	tb.do(chromedp.SendKeys("#token", admin+"\r"))
	tb.until(deltas + ` === '+5' && document.querySelector('#journal-rows .sender').textContent === 'boss'`)
}
