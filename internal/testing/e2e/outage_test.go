package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/faultproxy"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// An ownDeployment uses emulators of the test's own, with a proxy in front of each. The test may break
// them.
type ownDeployment struct {
	*deployment
	pubsubServer, datastoreServer *emulator.Instance
	pubsubWay, datastoreWay       *faultproxy.Proxy
}

func own(t *testing.T) *ownDeployment {
	t.Helper()
	longtest.Only(t, "stops emulators for many seconds")
	d := &ownDeployment{pubsubServer: emulator.OwnPubSub(t), datastoreServer: emulator.OwnFirestore(t)}
	d.pubsubWay = faultproxy.Start(t, d.pubsubServer.Host)
	d.datastoreWay = faultproxy.Start(t, d.datastoreServer.Host)
	d.deployment = newDeployment(t, d.pubsubServer.Host, d.datastoreServer.Host, d.pubsubWay.Host(), d.datastoreWay.Host())
	return d
}

// away is how long a server is unavailable: longer than leases, the time-outs of calls and the time of
// a request. COUNTMILL_TEST_OUTAGE sets a longer time.
func away(t *testing.T) time.Duration {
	t.Helper()
	return max(20*time.Second, lengthOf(t, "COUNTMILL_TEST_OUTAGE", 20*time.Second))
}

// A fault is a way in which a server is unavailable.
type fault struct {
	name       string
	begin, end func(*emulator.Instance, *faultproxy.Proxy)
}

var faults = []fault{
	{"paused", // answers nothing, and its leases run on
		func(i *emulator.Instance, _ *faultproxy.Proxy) { i.Pause() },
		func(i *emulator.Instance, _ *faultproxy.Proxy) { i.Continue() }},
	{"cut off", // connections are reset and refused
		func(_ *emulator.Instance, p *faultproxy.Proxy) { p.Cut() },
		func(_ *emulator.Instance, p *faultproxy.Proxy) { p.Heal() }},
	{"half-open", // connections stay open and can be made, but nothing passes
		func(_ *emulator.Instance, p *faultproxy.Proxy) { p.Hang() },
		func(_ *emulator.Instance, p *faultproxy.Proxy) { p.Heal() }},
}

// While Pub/Sub is unavailable nothing is accepted as usual, and every role reports it. Afterwards all
// roles continue without a restart, and nothing is lost or counted twice.
func TestPubSubAway(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			d := own(t)
			publisher := d.publisher(t)
			o := outage{
				d: d, fault: f, server: d.pubsubServer, way: d.pubsubWay,
				publisher: publisher, reader: d.reader(t), aggregators: []*process{d.aggregator(t), d.aggregator(t)},
			}
			o.loses = append([]*process{publisher}, o.aggregators...)
			o.during = func() {
				status := post(publisher, `{"counter":"c-1"}`, "during")
				if status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
					t.Errorf("an increment without Pub/Sub: got status %d, want 503 or 504", status)
				}
				if status == http.StatusGatewayTimeout { // may count: if it is sent again it counts once
					o.extra = map[string]int64{"c-1": 1}
				}
			}
			o.after = func() {
				if o.extra == nil {
					return
				}
				until(t, time.Minute, "the same request to be accepted", func() bool {
					return post(publisher, `{"counter":"c-1"}`, "during") == http.StatusAccepted
				})
			}
			o.happens(t)
		})
	}
}

// While Datastore is unavailable increments are accepted, and no total is answered that might be wrong.
func TestDatastoreAway(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			d := own(t)
			o := outage{
				d: d, fault: f, server: d.datastoreServer, way: d.datastoreWay,
				publisher: d.publisher(t), reader: d.reader(t), aggregators: []*process{d.aggregator(t), d.aggregator(t)},
				after: func() {},
			}
			o.loses = append([]*process{o.reader}, o.aggregators...)
			o.during = func() {
				before := o.load.accepted()
				until(t, 10*time.Second, "increments to be accepted without Datastore", func() bool { return o.load.accepted() > before })
				refuses(t, o.reader)
			}
			o.happens(t)
			if n := o.load.answers()[http.StatusAccepted]; n == 0 || len(o.load.answers()) != 1 {
				t.Errorf("got answers %v, want 202 only", o.load.answers())
			}
		})
	}
}

// An outage is an unavailable server, and the roles that cannot work without it.
type outage struct {
	d                 *ownDeployment
	fault             fault
	server            *emulator.Instance
	way               *faultproxy.Proxy
	publisher, reader *process
	aggregators       []*process
	loses             []*process
	during, after     func()           // further conditions
	extra             map[string]int64 // counts besides the load's

	load *load
}

func (o *outage) happens(t *testing.T) {
	t.Helper()
	length := away(t)
	pace := 10 * time.Millisecond
	if length > time.Minute {
		pace = 200 * time.Millisecond
	}
	o.load = startPacedLoad(t, o.publisher, 8, 100, pace)
	o.load.wait(t, 2_000)
	calls := o.calls(t)
	o.fault.begin(o.server, o.way)
	defer o.fault.end(o.server, o.way)
	began, over := time.Now(), time.After(length)
	for _, p := range o.loses {
		took := until(t, length, "the "+p.role+" to say that it cannot work", func() bool { return p.status() == http.StatusServiceUnavailable })
		_, body := p.get("/readyz")
		t.Logf("the %s says so after %s: %s", p.role, took.Round(time.Second), body)
	}
	o.during()
	<-over
	for _, p := range o.loses {
		if status := p.status(); status != http.StatusServiceUnavailable {
			t.Errorf("at the end of the outage the %s answers %d on /readyz, want 503", p.role, status)
		}
	}
	calls.bounded(t, o.calls(t), time.Since(began))
	o.fault.end(o.server, o.way)
	o.recovers(t, time.Now(), length)
}

func (o *outage) recovers(t *testing.T, back time.Time, length time.Duration) {
	t.Helper()
	for _, p := range o.loses {
		until(t, 2*time.Minute, "the "+p.role+" to be ready again", func() bool { return p.status() == http.StatusOK })
	}
	ready := time.Since(back)
	o.load.wait(t, 1_000)
	o.after()
	want := o.load.end()
	for name, n := range o.extra {
		want[name] += n
	}
	took := o.reader.exact(t, 3*time.Minute, want)
	for status := range o.load.answers() {
		if status != http.StatusAccepted && status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
			t.Errorf("an answer of %d, want 202, 503 or 504 (0 is none)", status)
		}
	}
	o.d.noDeadLetters(t)
	o.reader.noDeadLetters(t)
	t.Logf("away for %s: all ready %s after, %d increments exact %s later; answers %v",
		length, ready.Round(time.Millisecond), o.load.accepted(), took.Round(time.Millisecond), o.load.answers())
}

// calls counts the attempted calls on an unavailable server.
type calls map[string]int

func (o *outage) calls(t *testing.T) calls {
	t.Helper()
	c := calls{
		"connections": o.way.Accepted(),
		"messages":    int(o.publisher.metric(t, "countmill_message_resends_total")),
		"reads":       int(o.reader.metric(t, "countmill_store_read_errors_total")),
	}
	for _, a := range o.aggregators {
		c["commits"] += int(a.metric(t, "countmill_commit_retries_total"))
	}
	return c
}

// bounded wants few attempts in an outage, because every role backs off. The limits are about three
// times the measured numbers; without back-off each would be in the thousands.
func (c calls) bounded(t *testing.T, after calls, length time.Duration) {
	t.Helper()
	made := make(calls)
	for what, n := range after {
		made[what] = n - c[what]
		if limit := 60 + int(2*length.Seconds()); made[what] > limit {
			t.Errorf("%d tries with %s in %s, want at most %d", made[what], what, length, limit)
		}
	}
	t.Logf("tries in %s: %v", length, made)
}

// status is the status of /readyz.
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
