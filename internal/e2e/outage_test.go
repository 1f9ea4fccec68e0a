package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/emulator"
)

// Without memcached the reader answers, right, and stays ready; it takes it again by
// itself.
func TestMemcachedStopped(t *testing.T) {
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
		began := time.Now()
		a, err := reader.ask("1m", "a")
		if err != nil || a.Totals[0].Total != 2 || a.Totals[0].Source != "store" {
			t.Fatalf("without memcached: got %+v, %v", a, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("an answer without memcached took %s", took)
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

// own is a deployment on emulators of the test's own, which it may maltreat.
func own(t *testing.T) (d *deployment, pubsub, datastore *emulator.Instance) {
	t.Helper()
	if testing.Short() {
		t.Skip("stops emulators for many seconds")
	}
	pubsub, datastore = emulator.OwnPubSub(t), emulator.OwnFirestore(t)
	d = &deployment{project: emulator.Project(), pubsub: pubsub.Host, datastore: datastore.Host, cache: emulator.Memcached(t)}
	d.provide(t)
	return d, pubsub, datastore
}

// A server that hangs is waited for: nothing is lost, nothing counts twice, nothing
// becomes a dead letter, and all goes on without a restart.
func TestPaused(t *testing.T) {
	d, pubsub, datastore := own(t)
	aggregators := []*process{d.aggregator(t), d.aggregator(t)}
	publisher, reader := d.publisher(t, "--linger", "20ms"), d.reader(t)
	want := make(map[string]int64)
	for _, o := range []outage{
		{"Pub/Sub", pubsub, append([]*process{publisher}, aggregators...), nil},
		{"Datastore", datastore, append([]*process{reader}, aggregators...), func() { refuses(t, reader) }},
	} {
		l := startLoad(t, publisher, 8, 100)
		l.wait(t, 2_000)
		o.happens(t)
		back := time.Now()
		l.wait(t, 1_000)
		for name, n := range l.end() {
			want[name] += n
		}
		reader.exact(t, 2*time.Minute, want)
		for status := range l.answers() {
			if status != http.StatusAccepted && status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
				t.Errorf("%s away: an answer of %d, want 202, 503 or 504 (0 is none)", o.name, status)
			}
		}
		t.Logf("%s away for %s: totals exact %s after everybody was ready again; answers %v",
			o.name, away, time.Since(back).Round(time.Millisecond), l.answers())
	}
	d.noDeadLetters(t)
	if n := countEntities(t, d, "CountmillDead"); n != 0 {
		t.Errorf("the store has %d dead letters, want none", n)
	}
}

// away is how long a server answers nothing: longer than leases, call time-outs and the
// time of a request.
const away = 30 * time.Second

// An outage is a server that stops answering, and those who cannot work then.
type outage struct {
	name   string
	server *emulator.Instance
	loses  []*process
	during func() // what else must hold; nil for nothing
}

func (o outage) happens(t *testing.T) {
	t.Helper()
	o.server.Pause()
	defer o.server.Continue()
	over := time.After(away)
	for _, p := range o.loses {
		took := until(t, away, "the "+p.role+" to say that it cannot work", func() bool { return p.status() == http.StatusServiceUnavailable })
		_, body := p.get("/readyz")
		t.Logf("%s away: the %s says so after %s: %s", o.name, p.role, took.Round(time.Second), body)
	}
	if o.during != nil {
		o.during()
	}
	<-over
	o.server.Continue()
	for _, p := range o.loses {
		took := until(t, time.Minute, "the "+p.role+" to be ready again", func() bool { return p.status() == http.StatusOK })
		t.Logf("%s back: the %s is ready after %s", o.name, p.role, took.Round(time.Millisecond))
	}
}

// status is that of /readyz.
func (p *process) status() int {
	status, _ := p.get("/readyz")
	return status
}

func refuses(t *testing.T, reader *process) {
	t.Helper()
	_, err := reader.ask("0s", "c-1")
	if err == nil || !strings.HasPrefix(err.Error(), "503") && !strings.HasPrefix(err.Error(), "504") {
		t.Errorf("a total without a store: got error %v, want 503 or 504", err)
	}
}

// A server that was restarted empty is another one: everybody says so, and nobody
// counts or answers as if nothing were.
func TestRestartedEmpty(t *testing.T) {
	d, pubsub, datastore := own(t)
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
	datastore.Restart()
	says(reader, "meta record")
	says(aggregator, "meta record")
	if a, err := reader.ask("0s", "a"); err == nil {
		t.Errorf("the reader of an emptied store answers %+v", a)
	}
	pubsub.Restart()
	says(aggregator, "")
	if status := post(publisher, `{"counter":"a"}`, "2"); status == http.StatusAccepted {
		t.Error("an increment was accepted for a topic that is gone")
	}
	says(publisher, "gcloud pubsub topics create")
}
