package e2e

import (
	"fmt"
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
				status := post(publisher, `{"counter":"during"}`, "during")
				if status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
					t.Errorf("an increment without Pub/Sub: got status %d, want 503 or 504", status)
				}
			}
			o.after = func() { // it may count already: if it is sent again it counts once
				until(t, time.Minute, "the same request to be accepted", func() bool {
					return post(publisher, `{"counter":"during"}`, "during") == http.StatusAccepted
				})
				until(t, time.Minute, "the same request to be counted", func() bool {
					got, err := o.reader.ask("0s", "during")
					if err == nil && got.Totals[0].Total > 1 {
						t.Fatalf("it counted %d times", got.Totals[0].Total)
					}
					return err == nil && got.Totals[0].Total == 1
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
				o.callers.wait(t, 1)
				refuses(t, o.reader)
			}
			o.happens(t)
			for status := range o.callers.statuses {
				if status != http.StatusAccepted && status != 0 {
					t.Errorf("an increment was answered with %d, want 202 only (0 is none: a caller gave up)", status)
				}
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
	during, after     func() // further conditions

	callers *callers
}

func (o *outage) happens(t *testing.T) {
	t.Helper()
	length := away(t)
	ledger := newLedger("outage", false)
	ledger.apart = emulatorLate
	o.callers = startCallers(t, ledger, seed(t), o.publisher.as(), o.reader.as(), max(1, length/time.Minute)*100*time.Millisecond)
	o.callers.wait(t, 2_000)
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
	o.callers.wait(t, 1_000)
	o.after()
	o.callers.settle(t)
	o.callers.report(t, time.Since(back), []time.Duration{ready}, [2]string{"seconds away", fmt.Sprintf("%.0f", length.Seconds())})
	o.d.noDeadLetters(t)
	o.reader.noDeadLetters(t)
}

// calls counts the attempted calls on an unavailable server.
type calls map[string]int

func (o *outage) calls(t *testing.T) calls {
	t.Helper()
	c := calls{
		"connections": o.way.Accepted(),
		"messages":    int(o.publisher.metric(t, "countmill_message_resends_total")),
		"reads":       int(o.reader.metric(t, "countmill_store_read_errors_total")) - o.callers.failed(), // besides a read for each question
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
	_, err := reader.ask("0s", "during")
	if err == nil || !strings.HasPrefix(err.Error(), "503") && !strings.HasPrefix(err.Error(), "504") {
		t.Errorf("a total without a store: got error %v, want 503 or 504", err)
	}
}
