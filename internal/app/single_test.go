package app

import (
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/publisher"
)

// A reader shows the aggregators' lag, and how many are alive. With none the lag is absent.
func TestAReaderShowsTheLag(t *testing.T) {
	t.Parallel()
	b := openApart(t)
	reader, aggregator := b.run(t, Config{Roles: Reader}), b.run(t, Config{Roles: Aggregator})
	defer reader.stop(t)
	shows := func(alive string, lag bool) func() bool {
		return func() bool {
			_, text := reader.call(t, "GET", "/metrics", "")
			return strings.Contains(text, "\ncountmill_aggregators_alive "+alive+"\n") && strings.Contains(text, "\ncountmill_lag_seconds 0\n") == lag
		}
	}
	reader.poll(t, "shown as alive", shows("1", true))
	aggregator.stop(t)
	reader.poll(t, "shown as gone", shows("0", false))
}

// Single roles are the same composition as `up`: together they count, with markers, as a bus between processes delivers again.
func TestSingleRolesTogether(t *testing.T) {
	t.Parallel()
	b := openApart(t)
	roles := make(map[Roles]*running)
	for _, role := range []Roles{Reader, Aggregator, Publisher} {
		roles[role] = b.run(t, Config{Roles: role, Publisher: publisher.Config{Linger: time.Millisecond}, Aggregator: aggregator.Config{Linger: time.Millisecond}})
		defer roles[role].stop(t) // publisher, aggregator, reader
	}
	for _, r := range roles {
		r.waitReady(t)
	}
	roles[Publisher].incr(t, `{"counter":"a","delta":3}`)
	roles[Reader].wantTotal(t, "a", 3)
	if got := roles[Aggregator].metric(t, "countmill_entities_written_total"); got < 3 {
		t.Errorf("the aggregator wrote %v entities, want a record, a marker and a shard", got)
	}
	if status, text := roles[Publisher].call(t, "POST", "/v1/increments?return=totals", `{"counter":"a"}`); status != 400 || !strings.Contains(text, "in one process") {
		t.Errorf("totals of a publisher alone: got %d %s, want 400 that says what it needs", status, text)
	}
}
