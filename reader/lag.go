package reader

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/countmill/countmill/internal/storetime"
	"github.com/countmill/countmill/store"
)

const (
	// lagRetry is how often the aggregators' records are read while none is fresh or
	// the store does not give them.
	lagRetry = time.Second

	// lagTimeout bounds one reading of them: a total that is there already waits no
	// longer for its lag.
	lagTimeout = time.Second
)

// A Pipeline is what the aggregators last said of themselves.
type Pipeline struct {
	// Workers is how many of them are alive: their records are fresh, and they take messages.
	Workers int
	// Lag is the largest age of an increment that one of them holds uncommitted. A fresh record
	// counts also where its aggregator takes no messages. See LagKnown.
	Lag time.Duration
	// Entries folded and Commits made a second by all of them together, between their
	// last two records. RatesKnown is false where one of them was seen only once.
	Entries, Commits float64
	RatesKnown       bool
	// OldestSettings and NewestSettings are the least and the greatest version of the settings that
	// one of them uses; both are 0 where none has read them.
	OldestSettings, NewestSettings int64
}

// LagKnown reports whether Lag means anything. While no aggregator is alive nobody takes the
// messages on the bus, so a 0 would be a guess; the messages that a stopped one holds are known.
func (p *Pipeline) LagKnown() bool { return p.Workers > 0 || p.Lag > 0 }

// Lag returns the largest lag that aggregators announced at most Config.LagEvery ago; known
// is false where nothing is.
func (r *Reader) Lag(ctx context.Context) (lag time.Duration, known bool) {
	p := r.Pipeline(ctx)
	return p.Lag, p.LagKnown()
}

// Pipeline returns what the aggregators announced at most Config.LagEvery ago. Where the
// store cannot be read it is what is still fresh of the last reading.
func (r *Reader) Pipeline(ctx context.Context) Pipeline {
	if !r.workers.clock.Known() {
		_ = r.checkStore(ctx)
	}
	p, due := r.workers.look(time.Now(), r.workers.clock.Now())
	if due {
		r.fetchWorkers(ctx)
		p, _ = r.workers.look(time.Now(), r.workers.clock.Now())
	}
	return p
}

// fetchWorkers reads the records, one caller at a time. Others do with what there is,
// but wait where there is nothing yet: the first answers of a process know the lag too.
func (r *Reader) fetchWorkers(ctx context.Context) {
	if r.workers.fetched() {
		if !r.workers.fetching.begin("") {
			return
		}
		defer r.workers.fetching.end("")
	}
	_, _, _ = r.workers.flights.do(ctx, "", time.Time{}, func(ctx context.Context) (struct{}, error) {
		call, cancel := context.WithTimeout(ctx, min(r.cfg.Timeout, lagTimeout))
		defer cancel()
		workers, err := r.store.Workers(call)
		switch {
		case err == nil:
			r.workers.note(time.Now(), workers)
		case ctx.Err() == nil:
			r.workers.fail(time.Now())
			r.stats.storeErrors.Add(1)
			r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "aggregators' records not read", slog.Any("err", err))
		}
		return struct{}{}, err
	})
}

// A roster is what is known of the aggregators.
type roster struct {
	every    time.Duration
	flights  flights[struct{}]
	fetching busy // once there was a reading
	// clock is what aggregators go by: they learn from Check, and not from views, whose moments
	// may be ahead where they never go back.
	clock storetime.Clock

	mu      sync.Mutex
	tried   time.Time // the last reading, of our clock
	failed  bool      // that reading did
	once    bool      // there was a reading
	workers map[string]sighting
}

// A sighting is a worker's last record, and its pace between that and the one before.
type sighting struct {
	worker           store.Worker
	entries, commits float64
	paced            bool
}

func (ro *roster) fetched() bool {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	return ro.once
}

// look returns what is known, and whether it is time for another reading.
func (ro *roster) look(now, storeNow time.Time) (p Pipeline, due bool) {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	p = ro.pipelineLocked(storeNow)
	every := ro.every
	if ro.failed || p.Workers == 0 {
		every = min(every, lagRetry)
	}
	return p, !ro.once && !ro.failed || now.Sub(ro.tried) >= every
}

func (ro *roster) fail(now time.Time) {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	ro.tried, ro.failed = now, true
}

func (ro *roster) note(now time.Time, workers []store.Worker) {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	seen := make(map[string]sighting, len(workers))
	for _, w := range workers {
		seen[w.ID] = ro.workers[w.ID].next(w)
	}
	ro.tried, ro.failed, ro.once, ro.workers = now, false, true, seen
}

// next takes the worker's newer record. The time between two records is what its expiry
// moved by; the time between two readings of them is not: it can see one announcement
// or two.
func (s sighting) next(w store.Worker) sighting {
	between := w.Expires.Sub(s.worker.Expires).Seconds()
	switch {
	case s.worker.ID == "" || w.Entries < s.worker.Entries || w.Commits < s.worker.Commits: // new, or started anew
		return sighting{worker: w}
	case between < 0: // a clock was set back: nothing can be said of the pace
		return sighting{worker: w}
	case between == 0: // the same record, or that of another life that began at the same moment
		s.worker = w
		return s
	}
	return sighting{
		worker:  w,
		entries: float64(w.Entries-s.worker.Entries) / between,
		commits: float64(w.Commits-s.worker.Commits) / between,
		paced:   true,
	}
}

func (ro *roster) pipelineLocked(storeNow time.Time) Pipeline {
	p, fresh := Pipeline{RatesKnown: true}, 0
	for _, s := range ro.workers {
		if !s.worker.Expires.After(storeNow) {
			continue
		}
		fresh++
		if !s.worker.Stalled {
			p.Workers++
		}
		p.Lag = max(p.Lag, s.worker.Lag)
		p.settings(s.worker.Settings)
		p.Entries += s.entries
		p.Commits += s.commits
		p.RatesKnown = p.RatesKnown && s.paced
	}
	if fresh == 0 || !p.RatesKnown {
		p.Entries, p.Commits, p.RatesKnown = 0, 0, false
	}
	return p
}

func (p *Pipeline) settings(version int64) {
	if version > 0 && (p.OldestSettings == 0 || version < p.OldestSettings) {
		p.OldestSettings = version
	}
	p.NewestSettings = max(p.NewestSettings, version)
}
