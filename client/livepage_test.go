//go:build unix

package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// lookout replaces the page: the element prints each text that it gets.
const lookout = `globalThis.document = { querySelector: () => ({ set textContent(text) { console.log(JSON.stringify(text)); } }) };
`

// The page of docs/howto/page.md shows totals and rates, new counters and deleted ones. Node runs its
// script as it is.
func TestTheLivePageOfTheDocuments(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "waits for two lists of names")
	page, err := os.ReadFile("../docs/howto/page.md")
	must(t, err)
	script := regexp.MustCompile("(?s)```js\n(.*?)```").FindSubmatch(page)
	const documented = `"http://127.0.0.1:8080"`
	if script == nil || strings.Count(string(script[1]), documented) != 1 {
		t.Fatalf("the page has no script, or it names another server than %s", documented)
	}
	if lines := strings.Count(string(script[1]), "\n"); lines > 40 {
		t.Errorf("the script has %d lines, want at most 40", lines)
	}
	node := find(t, "node", 20, 3)
	c, base := serveAt(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	incr := func(counter string) { must(t, c.Increment(ctx, countmill.Increment{Counter: counter, Delta: 1})) }
	incr("page:a")

	file := filepath.Join(t.TempDir(), "page.mjs")
	must(t, os.WriteFile(file, []byte(lookout+strings.Replace(string(script[1]), documented, `"`+base+`"`, 1)), 0o600))
	cmd := exec.CommandContext(ctx, node, file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer cancel() // ends node
	lines := bufio.NewScanner(out)
	for _, step := range []struct {
		next func()
		want string // a pattern of the text at the end of the step
	}{
		{func() {}, `page:a 1 \(0/s\)`},
		{func() { incr("page:a") }, `page:a 2 \([\d.]*[1-9][\d.]*/s\)`},
		{func() { incr("page:b") }, `page:a 2 \(0/s\)\npage:b 1 \(\?/s\)`},
		{func() { _, err := c.Delete(ctx, "page:a"); must(t, err) }, `page:b 1 \(0/s\)`},
	} {
		step.next()
		want, shown := regexp.MustCompile("^"+step.want+"$"), ""
		for !want.MatchString(shown) && lines.Scan() {
			if err := json.Unmarshal(lines.Bytes(), &shown); err != nil {
				t.Errorf("the page prints %q", lines.Text())
			}
		}
		if !want.MatchString(shown) {
			t.Fatalf("the page shows %q, want %q", shown, want)
		}
	}
}
