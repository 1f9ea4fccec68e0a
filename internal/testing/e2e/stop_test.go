package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// An aggregator that gets SIGTERM under load settles everything. No message that it folded is delivered
// again, except for those that Pub/Sub repeats by itself.
func TestTermMakesNoDuplicates(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	others := []*process{d.aggregator(t), d.aggregator(t)}
	publisher, reader := d.publisher(t), d.reader(t)
	l := startLoad(t, publisher, 8, 100)
	var duplicates, redeliveries, messages float64
	const stops = 3
	for range stops {
		victim := d.aggregator(t)
		until(t, 30*time.Second, "messages", func() bool { return victim.metric(t, "countmill_messages_received_total") > 20 })
		messages += victim.metric(t, "countmill_messages_received_total")
		victim.stop(t)
	}
	reader.exact(t, 2*time.Minute, l.end())
	for _, a := range others {
		duplicates += a.metric(t, "countmill_duplicate_parts_total")
		redeliveries += a.metric(t, "countmill_bus_redeliveries_total")
	}
	t.Logf("%d stops after %v messages, %d increments: %v parts came again, Pub/Sub delivered %v messages again",
		stops, messages, l.accepted(), duplicates, redeliveries)
	if duplicates > 0 {
		t.Errorf("%v parts that were folded came again", duplicates)
	}
	// Some messages are not received yet when the signal comes: a few. With SIGKILL instead, all held
	// messages would be delivered again.
	if redeliveries > messages/4 {
		t.Errorf("Pub/Sub delivered %v of %v messages again: stops did not finish what had been taken", redeliveries, messages)
	}
	d.noDeadLetters(t)
}

// After kill -9 of one of three aggregators, the totals are exact with the delay of an ack deadline and
// a little more. COUNTMILL_TEST_KILLS is the number of kills, 3 by default.
func TestKillOneOfThree(t *testing.T) {
	t.Parallel()
	kills := timesOf(t, "COUNTMILL_TEST_KILLS", 3)
	d := deploy(t)
	aggregators := []*process{d.aggregator(t), d.aggregator(t), d.aggregator(t)}
	publisher, reader := d.publisher(t), d.reader(t)
	want := make(map[string]int64)
	// counted returns how long it takes from now on until everything is counted.
	counted := func(l *load) time.Duration {
		began := time.Now()
		for name, n := range l.end() {
			want[name] += n
		}
		reader.exact(t, 3*time.Minute, want)
		return time.Since(began)
	}
	var calm, all []time.Duration
	for range kills {
		l := startLoad(t, publisher, 8, 100)
		l.wait(t, 2_000)
		calm = append(calm, counted(l))
		l = startLoad(t, publisher, 8, 100)
		l.wait(t, 2_000)
		aggregators[0].kill()
		all = append(all, counted(l))
		aggregators = append(aggregators[1:], d.aggregator(t))
	}
	slices.Sort(all)
	target := ackDeadline + 5*time.Second + 2*slices.Max(calm)
	median := all[len(all)/2]
	t.Logf("until totals were exact: median %.1fs, maximum %.1fs of %d kills; all: %v, without: %v", median.Seconds(), all[len(all)-1].Seconds(), kills, all, calm)
	if median > target {
		t.Errorf("half of the totals were exact only %s after a kill, want an ack deadline and 5s more than without, %s", median, target)
	}
	d.noDeadLetters(t)
}

// lag is the age of the oldest held increment. On an idle machine it is right within 5s and never too
// large. It is null when no aggregator runs.
func TestLag(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	const hold = 25 * time.Second
	aggregator, publisher, reader := d.aggregator(t, "--count-within", hold.String()), d.publisher(t), d.reader(t)
	began := time.Now()
	if status := post(publisher, `{"counter":"a"}`, "first"); status != http.StatusAccepted {
		t.Fatalf("got status %d, want 202", status)
	}
	right := 0
	for time.Since(began) < hold-2*time.Second {
		asked := time.Since(began).Seconds()
		lag := reader.lag(t)
		if age := time.Since(began).Seconds(); lag != nil && *lag > age+1 {
			t.Fatalf("an increment is held for %.1fs, and the lag is %v", age, text(lag))
		}
		if lag != nil && asked > 6 && *lag >= asked-6 {
			right++
		}
		<-time.After(200 * time.Millisecond)
	}
	if right < 5 { // of some 80
		t.Errorf("an increment was held for %s, and the lag was right %d times", hold, right)
	}
	reader.exact(t, 30*time.Second, map[string]int64{"a": 1})
	zero := until(t, 12*time.Second, "a lag of 0", func() bool { lag := reader.lag(t); return lag != nil && *lag < 1 })

	aggregator.stop(t)
	stopped := until(t, 30*time.Second, "a lag of null", func() bool { return reader.lag(t) == nil })
	if stopped > 10*time.Second { // the shortest time after an end without notice
		t.Errorf("null came %s after the last aggregator had stopped, want 5s or so", stopped)
	}
	again := d.aggregator(t)
	back := until(t, 30*time.Second, "a lag again", func() bool { return reader.lag(t) != nil })
	again.kill()
	killed := until(t, 30*time.Second, "a lag of null after a kill", func() bool { return reader.lag(t) == nil })
	t.Logf("0 %s after the total; null %s after SIGTERM and %s after SIGKILL; a number %s after a start", zero, stopped, killed, back)
}

// lag is the lag of an answer; nil for null.
func (p *process) lag(t *testing.T) *float64 {
	t.Helper()
	a, err := p.ask("0s", "a")
	if err != nil {
		t.Fatal(err)
	}
	return a.Lag
}

func text(lag *float64) string {
	if lag == nil {
		return "null"
	}
	return fmt.Sprintf("%.1fs", *lag)
}
