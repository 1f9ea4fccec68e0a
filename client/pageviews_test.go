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
	"github.com/countmill/countmill/client"
)

// pageViews returns the only block of docs/howto/page-views.md in a language. It calls the server at base.
func pageViews(t *testing.T, language, base string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/howto/page-views.md")
	must(t, err)
	found := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	const documented = `"http://127.0.0.1:8080"`
	if len(found) != 1 || strings.Count(found[0][1], documented) != 1 {
		t.Fatalf("the page has %d blocks of %s, or the block does not name the server %s once", len(found), language, documented)
	}
	return strings.Replace(found[0][1], documented, `"`+base+`"`, 1)
}

// viewed is a countmill with the rules and the index of docs/howto/page-views.md, whose groups have totals.
func viewed(t *testing.T, ctx context.Context) (*client.Client, string) {
	t.Helper()
	c, base := serveAt(t)
	for _, pattern := range []string{"page:*", "=views*"} {
		_, err := c.AddRule(ctx, client.KindSeries, pattern, "1m:6h,15m:400d")
		must(t, err)
	}
	x, err := c.CreateIndex(ctx, "pages", "page:{path}", "views")
	for ; err == nil && x.Indexes[0].State != "serving"; x, err = c.Indexes(ctx) {
		time.Sleep(50 * time.Millisecond)
	}
	must(t, err)
	return c, base
}

// sameDay ends the test without a verdict if the day of the totals ended meanwhile.
func sameDay(t *testing.T, since time.Time) {
	t.Helper()
	if since.UTC().Day() != time.Now().UTC().Day() {
		t.Skip("the day ended meanwhile")
	}
}

// Each program of docs/howto/page-views.md begins with an empty countmill: it adds the rules and the index, counts a view, and
// prints the top of today and the curve.
func TestPageViewsFromPrograms(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	const path = "page.mjs"
	for _, tt := range []struct {
		language, file string
		command        func(t *testing.T, dir string) []string
	}{
		{"go", "main.go", func(t *testing.T, dir string) []string {
			build := exec.Command("go", "build", "-o", filepath.Join(dir, "main"), filepath.Join(dir, "main.go"))
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("go build: %v\n%s", err, out)
			}
			return []string{filepath.Join(dir, "main")}
		}},
		{"python", "main.py", func(t *testing.T, _ string) []string { return []string{find(t, "python3", 3, 9), "main.py"} }},
		{"js", path, func(t *testing.T, _ string) []string { return []string{find(t, "node", 20, 3), path} }},
	} {
		t.Run(tt.language, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			began := time.Now()
			_, base := serveAt(t)
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, tt.file), []byte(pageViews(t, tt.language, base)), 0o600))
			packages, err := filepath.Abs(".")
			must(t, err)
			must(t, os.Mkdir(filepath.Join(dir, "node_modules"), 0o700))
			must(t, os.Symlink(filepath.Join(packages, "js"), filepath.Join(dir, "node_modules", "countmill")))
			args := tt.command(t, dir)
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONPATH="+filepath.Join(packages, "python"), "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			sameDay(t, began)
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if err != nil || lines[0] != "1 page:/home" {
				t.Fatalf("got %v and\n%s\nwant a line 1 page:/home", err, out)
			}
			if curve := strings.Join(lines[1:], "\n") + "\n"; len(lines) < 25 || strings.Count(curve, " 1\n") != 1 {
				t.Errorf("got the curve\n%s\nwant 24 hours or more, one of them with 1", curve)
			}
		})
	}
}

// elements replaces the page: each element prints its new text, as [its selector, the text].
const elements = `globalThis.document = { querySelector: (name) => {
  const print = (text) => console.log(JSON.stringify([name, text]));
  return { set textContent(text) { print(text); }, set innerHTML(text) { print(text); } };
} };
`

// The web page of docs/howto/page-views.md shows the top and the curve. Node runs its script as it is.
func TestTheWebPageOfPageViews(t *testing.T) {
	t.Parallel()
	node := find(t, "node", 20, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	c, base := viewed(t, ctx)
	for name, delta := range map[string]int64{"page:/home": 3, "page:/pricing": 1} {
		must(t, c.Increment(ctx, countmill.Increment{Counter: name, Delta: delta}))
	}
	script := regexp.MustCompile(`(?s)<script type="module">\n(.*)</script>`).FindStringSubmatch(pageViews(t, "html", base))
	if script == nil {
		t.Fatal("the page has no script")
	}
	file := filepath.Join(t.TempDir(), "page.mjs")
	must(t, os.WriteFile(file, []byte(elements+script[1]), 0o600))
	cmd := exec.CommandContext(ctx, node, file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer cancel() // ends node
	shown := map[string]string{}
	for lines := bufio.NewScanner(out); len(shown) < 2 && lines.Scan(); {
		var set [2]string
		if err := json.Unmarshal(lines.Bytes(), &set); err != nil {
			t.Fatalf("the page prints %q", lines.Text())
		}
		shown[set[0]] = set[1]
	}
	sameDay(t, began)
	if want := "3 page:/home\n1 page:/pricing"; shown["#top"] != want {
		t.Errorf("the top is %q, want %q", shown["#top"], want)
	}
	if n := strings.Count(shown["#curve"], "<rect "); n < 24 || strings.Count(shown["#curve"], `height="100"/>`) != 1 {
		t.Errorf("the curve has %d bars, want 24 or more, one of them as high as the picture:\n%s", n, shown["#curve"])
	}
}
