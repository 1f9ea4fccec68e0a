//go:build linux

package browser

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestScreenshots writes pictures of the page under load into COUNTMILL_SCREENSHOTS, in both themes
// and at the width of a phone. `make screenshots` runs it.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("COUNTMILL_SCREENSHOTS")
	if dir == "" {
		t.Skip("COUNTMILL_SCREENSHOTS names no directory")
	}
	m, tb := up(t), open(t, "404")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		traffic(t, m, stop)
	}()
	defer func() { close(stop); <-done }()
	tb.size(1280, 860)
	tb.visit(m.url + "/#counter=page:/home")
	tb.until(row("page:/home"))
	for began := time.Now(); time.Since(began) < watched; {
		tb.until("true") // the tab stays in use
		time.Sleep(time.Second)
	}
	for _, theme := range []string{"light", "dark"} {
		tb.prefers(theme)
		for _, s := range []struct {
			name          string
			width, height int64
			counter       string
		}{{"page", 1280, 860, "page:/home"}, {"phone", 360, 780, ""}, {"phone-counter", 360, 780, "page:/home"}} {
			tb.size(s.width, s.height)
			tb.run(fmt.Sprintf("location.hash = %q", "counter="+s.counter))
			time.Sleep(1500 * time.Millisecond)
			picture, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, s.name+"-"+theme+".png"), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// watched is how long the page is open before the pictures: long enough for a curve.
const watched = 100 * time.Second

// traffic counts visits of a site until stop is closed: some pages often, most seldom, with waves.
func traffic(t *testing.T, m *mill, stop <-chan struct{}) {
	type increment struct {
		Counter string `json:"counter"`
		Delta   int64  `json:"delta"`
	}
	pages := []string{"page:/home", "page:/pricing", "page:/docs/start", "api:/v1/orders", "api:/v1/search", "signup:started", "signup:done", "page:/blog",
		"order:paid", "order:refunded", "mail:sent", "mail:bounced", "page:/docs/howto", "page:/about", "page:/jobs", "download:linux-amd64", "download:darwin-arm64", "error:404", "error:500"}
	random := rand.New(rand.NewPCG(1, 2))
	began := time.Now()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-stop:
			tick.Stop()
			return
		case <-tick.C:
		}
		at := time.Since(began).Seconds()
		wave := 1 + 0.25*math.Sin(at/7.5) + 0.2*math.Sin(at/3)
		var incs []increment
		for i, page := range pages {
			n := int64(wave * (0.7 + 0.6*random.Float64()) * 130 / float64(i+1) / (1 + float64(i)/3))
			for range n { // each is an increment
				incs = append(incs, increment{page, 1})
			}
			if n == 0 && random.IntN(20) == 0 {
				incs = append(incs, increment{page, 1})
			}
		}
		body, err := json.Marshal(incs)
		if err != nil {
			t.Error(err)
			return
		}
		m.post(t, body)
	}
}
