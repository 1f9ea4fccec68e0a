//go:build linux

package browser

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
)

// An index shows its progress while it is being built, and then its groups, which have totals and curves like
// counters. Meanwhile the other counters go on moving.
func TestGroups(t *testing.T) {
	t.Parallel()
	m, tb := up(t, "--index-rate", "10"), open(t, "409") // the page may ask for the stream of a group before it knows of the building
	run(t, "rule", "add", "series", "=site:*=1m:6h,15m:30d", "--server", m.url)
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("page:a:%02d", i), "page:b:0")
	}
	m.count(t, names...)
	tb.visit(m.url + "/")
	tb.until(`document.querySelector('#group-part').hidden && ` + total("page:a:00", "1"))
	run(t, "index", "create", "sites", "--match", "page:{site}:*", "--group", "site:{site}", "--server", m.url)
	tb.visit(m.url + "/#" + url.Values{"counter": {"=site:a"}}.Encode())
	tb.do(chromedp.Reload())
	tb.until(`document.querySelector('#indexes .rate')?.textContent.startsWith('building') && !document.querySelector('#indexes progress').hidden`)
	tb.until(`document.querySelector('#as-of').textContent.startsWith('no total: its index sites is building')`)
	tb.until(`document.querySelector('#indexes progress').value > 0`)
	m.count(t, "page:a:00")
	tb.until(total("page:a:00", "2"))
	tb.until(`document.querySelector('#indexes .rate').textContent === 'serving' && document.querySelector('#indexes progress').hidden`)
	tb.until(`document.querySelector('#total').textContent === '61'`)
	m.count(t, "page:a:01")
	tb.until(`document.querySelector('#total').textContent === '62'`)
	tb.do(chromedp.Click(`#ranges button[data-range=hour]`))
	tb.until(`document.querySelector('#readout').textContent.startsWith('2 since ') && document.querySelector('#foot').textContent.includes('60 without a curve')`)
	tb.do(chromedp.Click(`#indexes a`))
	tb.until(total("=site:a", "62") + " && " + total("=site:b", "60"))
	tb.until(`document.querySelectorAll('.rows li').length === 2 && document.querySelector('#search').value === '=site:'`)
	tb.fitsAll()
}
