package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A server that was restarted empty counts as another server: every role reports it, and no role counts
// or answers as usual.
func TestRestartedEmpty(t *testing.T) {
	t.Parallel()
	d := own(t)
	aggregator, publisher, reader := d.aggregator(t), d.publisher(t), d.reader(t)
	if status := post(publisher, `{"counter":"a"}`, "1"); status != http.StatusAccepted {
		t.Fatalf("got status %d, want 202", status)
	}
	reader.exact(t, 30*time.Second, map[string]int64{"a": 1})
	says := func(p *process, text string) {
		t.Helper()
		took := until(t, time.Minute, "the "+p.role+" to say "+text, func() bool {
			status, body := p.get("/readyz")
			return status == http.StatusServiceUnavailable && strings.Contains(body, text)
		})
		_, body := p.get("/readyz")
		t.Logf("the %s says after %s: %s", p.role, took.Round(100*time.Millisecond), body)
	}
	d.datastoreServer.Restart()
	says(reader, "meta record")
	says(aggregator, "meta record")
	if a, err := reader.ask("0s", "a"); err == nil {
		t.Errorf("the reader of an emptied store answers %+v", a)
	}
	d.pubsubServer.Restart()
	says(aggregator, "")
	if status := post(publisher, `{"counter":"a"}`, "2"); status == http.StatusAccepted {
		t.Error("an increment was accepted for a topic that is gone")
	}
	says(publisher, "gcloud pubsub topics create")
}
