package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/longtest"
)

// Increments of new counters fill the disk of `countmill up --min-free`. They are refused before it is
// full. The process continues, and counts again when there is space.
func TestMinFreeKeepsTheProcessAlive(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds countmill and fills its disk for many seconds")
	const size, least = 1 << 30, 200 << 20
	dir := smallDisk(t, size)
	up := start(t, nil, "up", "--data", filepath.Join(dir, "data"), "--min-free", "200MiB").ready(t)
	if status := post(up, `{"counter":"before"}`, ""); status != http.StatusAccepted {
		t.Fatalf("an increment on an empty disk was answered with %d", status)
	}
	filler := filepath.Join(dir, "filler") // the rest is for Pebble's logs, some 300 MiB
	if err := os.WriteFile(filler, make([]byte, size/2), 0o600); err != nil {
		t.Fatal(err)
	}
	statuses, began := make(map[int]int), time.Now()
	for statuses[http.StatusInsufficientStorage] < 20 && time.Since(began) < busy+time.Minute {
		var body strings.Builder
		for range 400 {
			fmt.Fprintf(&body, "{\"counter\":\"%016x%s\"}\n", rand.Uint64(), strings.Repeat("x", 400))
		}
		statuses[post(up, body.String(), "")]++
	}
	t.Logf("answers %v in %s", statuses, time.Since(began).Round(time.Second))
	for status := range statuses {
		// 0: the answer came before the body was written, and the connection closed meanwhile. 504: the
		// request was accepted, and folding stopped before its turn.
		if status != 0 && status != http.StatusGatewayTimeout && status != http.StatusAccepted && status != http.StatusInsufficientStorage && status != http.StatusTooManyRequests {
			t.Errorf("got answers %v, want 202, 429, 504 and 507 only", statuses)
		}
	}
	if statuses[http.StatusInsufficientStorage] == 0 {
		t.Errorf("%d bytes were kept free, and nothing was refused", least)
	}
	total := func() float64 {
		got, err := up.ask("0s", "before")
		if err != nil {
			t.Fatalf("a read while the disk is nearly full: %v", err)
		}
		return float64(got.Totals[0].Total)
	}
	if got := total(); got != 1 {
		t.Errorf("the total is %v, want 1", got)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	until(t, time.Minute, "an increment to be taken with space again", func() bool {
		return post(up, `{"counter":"before"}`, "") == http.StatusAccepted
	})
	if got := total(); got != 2 {
		t.Errorf("the total is %v, want 2", got)
	}
}
