package cost

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A way is how applied parts are remembered, with the settings of its run.
type way struct {
	name           string
	marking        marking
	linger, window time.Duration // default theirs
}

// settings reports whether other settings than the marking differ from the defaults.
func (w way) settings() bool { return w.linger != 0 || w.window != 0 }

var (
	asToday   = way{name: "markers, as they are"}
	slowly    = way{name: "markers, linger 1.5 s, window 300 ms", linger: 1500 * time.Millisecond, window: 300 * time.Millisecond}
	bySender  = way{name: "a ledger a publisher", marking: marking{ledger: bySession}}
	byTheTime = way{name: "a ledger a second", marking: marking{ledger: bySecond(1)}}
	found     = way{name: "a ledger a commit, and a query", marking: marking{perCommit: true}}

	// ways are the alternatives to a marker for each message, and changed settings.
	ways = []way{
		asToday,
		{name: "markers, linger 1 s", linger: time.Second},
		{name: "markers, linger 450 ms", linger: 450 * time.Millisecond},
		slowly,
		bySender,
		{name: "a ledger a publisher, window 1 s", marking: marking{ledger: bySession}, window: time.Second},
		byTheTime,
		{name: "a ledger a second, 8 lanes", marking: marking{ledger: bySecond(8)}},
		{name: "in 20 shards by publisher", marking: marking{ledger: shardBySession(20), inShard: true}},
		{name: "in 20 shards by second", marking: marking{ledger: shardBySecond(20), inShard: true}},
		found,
		{name: "a ledger a commit, window 300 ms", marking: marking{perCommit: true}, window: 300 * time.Millisecond},
	}
)

// wayFigures are the figures of a way, for a million increments unless stated otherwise.
type wayFigures struct {
	Way         string  `json:"way"`
	Publishers  int     `json:"publishers"`
	Aggregators int     `json:"aggregators"`
	Shards      float64 `json:"shards_written"`
	Memory      float64 `json:"markers_or_ledgers_written"`
	Written     float64 `json:"entities_written"`
	Read        float64 `json:"entities_read"`
	Aborted     float64 `json:"commits_aborted"`
	PerCommit   float64 `json:"messages_per_commit"`
	Hottest     int     `json:"hottest_ledger_per_second"`
	OldestMS    int64   `json:"oldest_ms"`
}

func (f wayFigures) line() string {
	return fmt.Sprintf("| %s | %d | %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.1f | %d | %d |", f.Way, f.Publishers, f.Aggregators,
		f.Shards, f.Memory, f.Written, f.Read, f.Aborted, f.PerCommit, f.Hottest, f.OldestMS)
}

func wayTable(all []wayFigures) string {
	var w strings.Builder
	fmt.Fprintln(&w, "| | publishers | aggregators | shards | markers or ledgers | all | read | aborted commits | messages a commit | writes of the hottest ledger in a second | oldest increment, p99 ms |")
	fmt.Fprintln(&w, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, f := range all {
		fmt.Fprintln(&w, f.line())
	}
	return w.String()
}

// run is the load of TestHotCounter: one counter, 100,000 increments a second.
func (w way) run(t *testing.T, publishers, aggregators int, lasts time.Duration) (got wayFigures) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := w.marking.fresh()
		s := setup{publishers: publishers, aggregators: aggregators, linger: w.linger, window: w.window, marking: m}
		p := open(t, s)
		tick := min(time.Duration(publishers)*100*time.Microsecond, 20*time.Millisecond)
		p.drip(100_000, lasts, tick, func(i, n int) {
			if err := p.pubs[i].Add("hot", int64(n)); err != nil {
				t.Error(err)
			}
			p.note("hot", int64(n))
		})
		f := p.close()
		if w.marking.inShard {
			f.Shards = 0
		}
		f.Markers = m.cost.written
		got = wayFigures{
			Way: w.name, Publishers: publishers, Aggregators: aggregators,
			Shards: f.perMillion(f.Shards), Memory: f.perMillion(f.Markers), Written: f.perMillion(f.written()),
			Read: f.perMillion(m.cost.read + f.Reads), Aborted: f.perMillion(m.cost.aborted),
			PerCommit: float64(f.Messages) / float64(f.Commits), Hottest: m.hottest(), OldestMS: m.oldest().Milliseconds(),
		}
	})
	t.Log(got.line())
	rows.Lock()
	defer rows.Unlock()
	rows.ways = append(rows.ways, got)
	return got
}

// goal is how few entities per million increments a way should write.
const goal = 150

// The ways to write fewer markers than one a message. While this passes,
// docs/adr/007-one-marker-a-part.md is true of each.
func TestBelowOneMarkerAMessage(t *testing.T) {
	for _, aggregators := range choose([]int{1, 2, 4, 16}, []int{1, 4}) {
		markers := 0.0
		for _, w := range ways {
			lasts := choose(20*time.Second, max(5*time.Second, 10*w.linger)) // the end makes every publisher send once more
			f := w.run(t, 10, aggregators, lasts)
			if w.name == asToday.name {
				markers = f.Memory
			}
			w.check(t, f, markers)
		}
	}
	for _, publishers := range choose([]int{100, 1000}, []int{100}) {
		for _, w := range []way{asToday, bySender, byTheTime, found} {
			for _, aggregators := range choose([]int{1, 4, 16}, []int{4}) {
				w.run(t, publishers, aggregators, choose(5*time.Second, 2*time.Second))
			}
		}
	}
}

// check compares figures with the statements about the way, and with markers at their defaults.
func (w way) check(t *testing.T, f wayFigures, markers float64) {
	t.Helper()
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, %d aggregators: %s", w.name, f.Aggregators, fmt.Sprintf(format, args...))
	}
	if f.Aggregators > 1 && !w.settings() && f.Written < goal {
		wrong("%.0f entities per million reach the goal", f.Written)
	}
	if w.name == slowly.name && f.Aggregators <= 4 && f.Written > goal {
		wrong("%.0f entities per million do not reach the goal", f.Written)
	}
	if w.name == bySender.name && f.Memory < 0.95*markers {
		wrong("%.0f ledgers per million are less than the %.0f markers", f.Memory, markers)
	}
	if w.name == found.name && f.Memory > 1.05*f.Shards {
		wrong("%.0f ledgers for %.0f commits", f.Memory, f.Shards)
	}
	if w.marking.ledger != nil && f.Aggregators >= 4 && !w.settings() && f.Aborted < f.Memory/4 {
		wrong("only %.0f commits per million aborted, of %.0f ledgers", f.Aborted, f.Memory)
	}
}
