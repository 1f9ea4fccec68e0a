//go:build linux

package browser

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// guarded is a mill with a token for each use.
func guarded(t *testing.T) (m *mill, tokens string) {
	t.Helper()
	find(t)
	tokens = filepath.Join(t.TempDir(), "tokens")
	secret := run(t, "token", "new", "all", "--scope", "read,publish", "--file", tokens)
	m = up(t, "--tokens", tokens)
	m.token = secret
	m.count(t, "page:/home", "shop:a")
	return m, tokens
}

// The page asks for a token, keeps it for the tab, and forgets it when asked.
func TestToken(t *testing.T) {
	t.Parallel()
	m, _ := guarded(t)
	tb := open(t, "401")
	tb.visit(m.url + "/")
	tb.until(`document.querySelector('#ask').open`)
	enter := func(token string) { tb.do(chromedp.SendKeys("#token", token+"\r")) }
	enter("cmtok_wrong")
	tb.until(`document.querySelector('#ask').open && document.querySelector('#ask-wrong').textContent.includes('not known')`)
	enter(m.token)
	tb.until(total("page:/home", "1"))
	tb.do(chromedp.Reload())
	tb.until(total("shop:a", "1"))
	m.count(t, "shop:a")
	tb.until(total("shop:a", "2"))
	if eval[bool](tb, `Object.values(localStorage).some((v) => v.includes('cmtok_')) || location.href.includes('cmtok_')`) {
		t.Error("the token is kept beyond the tab")
	}
	tb.do(chromedp.Click("#leave"))
	tb.until(`document.querySelector('#ask').open`)
}

// A link shows the counters of its prefix alone. Its token does not stay in the address.
func TestShareLink(t *testing.T) {
	t.Parallel()
	m, tokens := guarded(t)
	tb := open(t)
	link := run(t, "share", "page:", "--server", m.url, "--file", tokens)
	m.waitFor(t, link)
	tb.visit(link)
	tb.until(total("page:/home", "1"))
	if eval[bool](tb, `location.href.includes('cmtok_')`) {
		t.Error("the token stays in the address")
	}
	if names := eval[[]string](tb, `[...document.querySelectorAll('.rows .name')].map((e) => e.textContent)`); len(names) != 1 {
		t.Errorf("the link shows %q, want page:/home alone", names)
	}
}

// A link that is opened in a tab with a token leaves that token to the tab: the way back, or forgetting the link's token, leads to it.
func TestShareLinkLeavesTheTokenOfTheTab(t *testing.T) {
	t.Parallel()
	m, tokens := guarded(t)
	tb := open(t, "401")
	link := run(t, "share", "page:", "--server", m.url, "--file", tokens)
	m.waitFor(t, link)
	const rows = `document.querySelectorAll('.rows .name').length`
	tb.visit(m.url + "/")
	tb.until(`document.querySelector('#ask').open`)
	tb.do(chromedp.SendKeys("#token", m.token+"\r"))
	tb.until(rows + ` === 2`)
	for _, back := range []string{`history.back()`, `document.querySelector('#leave').click()`} {
		tb.run(`setTimeout(() => { location.href = ` + strconv.Quote(link) + ` })`)
		tb.until(`location.hash.includes('shared') && ` + rows + ` === 1`)
		if eval[bool](tb, `location.href.includes('cmtok_')`) {
			t.Error("the token stays in the address")
		}
		tb.do(chromedp.Reload())
		tb.until(rows + ` === 1`)
		tb.run(`setTimeout(() => { ` + back + ` })`)
		tb.until(rows + ` === 2`)
	}
}

// waitFor waits until the server has read the token of a link.
func (m *mill) waitFor(t *testing.T, link string) {
	t.Helper()
	_, secret, _ := strings.Cut(link, "#token=")
	await(t, "reading the token of the link", func() bool {
		req, err := http.NewRequest("GET", m.url+"/v1/overview", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}
