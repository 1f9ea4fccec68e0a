package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Without memcached the reader answers correctly and stays ready. It uses memcached again by itself.
func TestMemcachedStopped(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.aggregator(t)
	publisher, reader := d.publisher(t), d.reader(t)
	count := func(key string, want int64) {
		t.Helper()
		if status := post(publisher, `{"counter":"a"}`, key); status != http.StatusAccepted {
			t.Fatalf("got status %d, want 202", status)
		}
		reader.exact(t, 30*time.Second, map[string]int64{"a": want})
	}
	count("1", 1)
	fromCache := func() bool {
		a, err := reader.ask("1m", "a")
		return err == nil && a.Totals[0].Source == "cache"
	}
	until(t, 10*time.Second, "a total out of memcached", fromCache)

	d.cache.Stop()
	until(t, 10*time.Second, "degraded", func() bool {
		status, body := reader.get("/readyz")
		return status == http.StatusOK && strings.Contains(body, "degraded")
	})
	count("2", 2)
	for range 20 {
		a, err := reader.ask("1m", "a")
		if err != nil || a.Totals[0].Total != 2 || a.Totals[0].Source != "store" {
			t.Fatalf("without memcached: got %+v, %v", a, err)
		}
	}
	d.cache.Start(t)
	until(t, 30*time.Second, "ready", func() bool {
		status, body := reader.get("/readyz")
		return status == http.StatusOK && !strings.Contains(body, "degraded")
	})
	until(t, 10*time.Second, "a total out of memcached again", fromCache)
	count("3", 3)
}
