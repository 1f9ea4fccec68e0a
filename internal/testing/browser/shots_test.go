//go:build linux

package browser

import (
	"encoding/json"
	"fmt"
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
	tb := open(t, "404")
	defer tb.close()
	m := up(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		traffic(t, m, stop)
	}()
	defer func() { close(stop); <-done }()
	tb.size(1280, 860)
	tb.visit(m.url + "/#counter=page:/home")
	tb.until(row("page:/home"))
	for began := time.Now(); time.Since(began) < watched(t); {
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
func watched(t *testing.T) time.Duration {
	text := os.Getenv("COUNTMILL_SCREENSHOTS_AFTER")
	if text == "" {
		return 100 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

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
		wave := 1 + 0.45*wobble(time.Since(began).Seconds())
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

// wobble is a slow wave from -1 to 1.
func wobble(s float64) float64 {
	v := 0.0
	for _, w := range []struct{ period, share float64 }{{47, 0.5}, {19, 0.3}, {7, 0.2}} {
		x := s / w.period
		x -= float64(int(x)) // 0 to 1
		v += w.share * (4*abs(x-0.5) - 1)
	}
	return v
}

func abs(v float64) float64 {
	if v < 0 {
		return -v
	}
	return v
}
