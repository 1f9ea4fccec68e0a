//go:build linux

package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browserPath is the path of Chromium or Chrome, empty if there is none.
func browserPath() string {
	for _, name := range []string{"chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// find skips the test without Chromium.
func find(t *testing.T) string {
	t.Helper()
	path := browserPath()
	switch {
	case path == "" && slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), "browser"):
		t.Fatal("there is no chromium or google-chrome (Debian: apt-get install chromium)")
	case path == "":
		t.Skip("there is no chromium or google-chrome (Debian: apt-get install chromium)")
	case testing.Short():
		t.Skip("starts a browser")
	}
	return path
}

// A tab is a page in a browser of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	allowed []string
	end     func()

	mu     sync.Mutex
	errors []string // of the console
}

// close ends the browser, and fails the test for errors on the console.
func (tb *tab) close() {
	tb.t.Helper()
	tb.end()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, e := range tb.errors {
		if !slices.ContainsFunc(tb.allowed, func(a string) bool { return strings.Contains(e, a) }) {
			tb.t.Errorf("on the console: %s", e)
		}
	}
}

// open starts a browser until the test ends. A test opens it after its servers, so that they end later. Any error on the
// console fails the test, unless it has one of the words in allowed.
func open(t *testing.T, allowed ...string) *tab {
	t.Helper()
	path := find(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-US"), chromedp.Env("HOME="+t.TempDir(), "LANGUAGE=en", "TZ=UTC"))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	ctx, endBrowser := chromedp.NewExecAllocator(ctx, options...)
	ctx, endTab := chromedp.NewContext(ctx)
	allowed = append(allowed, "willReadFrequently") // a warning about the tests' own looks at a plot
	tb := &tab{t: t, ctx: ctx, allowed: allowed, end: func() {
		endTab()
		endBrowser()
		cancel()
	}}
	t.Cleanup(tb.close)
	if err := chromedp.Listen(ctx, tb.listen); err != nil {
		t.Fatal(err)
	}
	return tb
}

// listen keeps errors and warnings of scripts, of the network and of the policy.
func (tb *tab) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			for _, a := range e.Args {
				text += fmt.Sprint(string(a.Value), a.Description, " ")
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			text = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if text == "" {
		return
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.errors = append(tb.errors, text)
}

func (tb *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, actions...); err != nil {
		tb.t.Fatal(err)
	}
}

func (tb *tab) visit(url string) {
	tb.t.Helper()
	tb.do(chromedp.Navigate(url))
}

// eval is the value of an expression.
func eval[T any](tb *tab, expression string) T {
	tb.t.Helper()
	value, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		tb.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// run runs a script for its effect.
func (tb *tab) run(script string) {
	tb.t.Helper()
	eval[bool](tb, script+"; true")
}

// until waits for an expression to be true.
func (tb *tab) until(expression string) {
	tb.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		yes, err := chromedp.Run(tb.ctx, chromedp.Evaluate[bool]("(() => { try { return !!("+expression+") } catch { return false } })()"))
		switch {
		case err != nil && !leaves(err):
			tb.t.Fatalf("%s: %v", expression, err)
		case yes:
			return
		case time.Now().After(deadline):
			tb.t.Fatalf("not within %s: %s\nthe page: %s", patience, expression, eval[string](tb, "document.body.innerText.slice(0, 2000)"))
		}
	}
}

// leaves is true for the error of an expression that was asked while the tab went to another page.
func leaves(err error) bool {
	for _, text := range []string{"Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context with specified id"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// size sets the size of the window, in CSS pixels.
func (tb *tab) size(width, height int64) {
	tb.t.Helper()
	tb.do(chromedp.EmulateViewport(width, height))
}

// prefers sets the theme of the system, light or dark.
func (tb *tab) prefers(theme string) {
	tb.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}
	if _, err := chromedp.Call(tb.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		tb.t.Fatal(err)
	}
}

// press types keys into the element that has the focus.
func (tb *tab) press(keys string) {
	tb.t.Helper()
	tb.do(chromedp.KeyEvent(keys))
}

// fits fails if the page is wider than its window.
func (tb *tab) fits(what string) {
	tb.t.Helper()
	if over := eval[int](tb, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		tb.t.Errorf("%s is %d px too wide", what, over)
	}
}

// fitsAll tries a wide window and a phone.
func (tb *tab) fitsAll() {
	tb.t.Helper()
	for _, width := range []int64{1280, 360} {
		tb.size(width, 800)
		tb.fits(fmt.Sprintf("at %d px the page", width))
	}
}

// row is an expression for the total of a counter in the list, in quotes of JavaScript.
func row(counter string) string {
	return fmt.Sprintf("[...document.querySelectorAll('.rows a')].find((a) => a.querySelector('.name').textContent === %q)", counter)
}

func total(counter, want string) string {
	return fmt.Sprintf("%s?.querySelector('.count').textContent === %q", row(counter), want)
}

// serve serves a handler until the test ends.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}
