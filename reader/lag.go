package reader

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

const (
	// lagRetry is the interval at which the aggregators' records are read while none is fresh or
	// reads fail.
	lagRetry = time.Second

	// lagTimeout bounds one read of the records: a total that was read already waits no longer
	// for its lag.
	lagTimeout = time.Second
)

// A Pipeline sums up the last heartbeats of the aggregators.
type Pipeline struct {
	// Workers is the number of aggregators that are alive: their records are fresh, and they take
	// messages.
	Workers int
	// Lag is the age of the oldest increment that an aggregator holds uncommitted. Fresh records
	// of stalled aggregators count too. See LagKnown.
	Lag time.Duration
	// Increments, Entries, Commits and Entities are the increments and entries folded, the commits
	// made and the entities written in a second by all aggregators together, between their last two
	// records. RatesKnown is false if an aggregator was seen only once.
	Increments, Entries, Commits, Entities float64
	RatesKnown                             bool
	// Folded, Written, Duplicates and DeadLetters are counts since the aggregators with fresh records
	// started: increments folded, entities written, parts that were applied before, and dead letters
	// written.
	Folded, Written, Duplicates, DeadLetters int64
	// OldestSettings and NewestSettings are the lowest and the highest version of the settings
	// that an aggregator uses; both are 0 if none has read them.
	OldestSettings, NewestSettings int64
	// Late are the aggregators, by ID, whose last record has expired within store.WorkerLate.
	Late []string
	// Unread means that the last read of the records failed: the store is slow or does not answer.
	Unread bool
}

// LagKnown reports whether Lag has a meaning. While no aggregator is alive, nobody takes messages
// from the bus, so a lag of 0 would be a guess. The messages that a stalled aggregator holds are
// known.
func (p *Pipeline) LagKnown() bool { return p.Workers > 0 || p.Lag > 0 }

// Pipeline returns the state of the aggregators by records that were read at most Config.LagEvery
// ago. If the store cannot be read, it uses the records of the last read that are still fresh.
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

// Busiest returns the counters that move most, at most store.MaxBusiest, the busiest first. It reads
// the records that Pipeline does.
func (r *Reader) Busiest(ctx context.Context) []store.Busy {
	r.Pipeline(ctx)
	return r.workers.busiest(r.workers.clock.Now())
}

// Fleet returns the records of aggregators that have not expired, by ID: also of those that take no
// messages. It reads the records that Pipeline does.
func (r *Reader) Fleet(ctx context.Context) []store.Worker {
	r.Pipeline(ctx)
	return r.workers.fresh(r.workers.clock.Now())
}

// fetchWorkers reads the records, one caller at a time. Other callers use the last ones. If there
// are none yet they wait, so that the first answers of a process know the lag too.
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

// A roster has the last records of the aggregators.
type roster struct {
	every    time.Duration
	flights  flights[struct{}]
	fetching busy // used after the first successful read
	// clock learns from Check alone, as the clocks of aggregators do. Views would teach it other
	// times: in stores whose read times never go back, the moments of views may be ahead.
	clock clock.Store

	mu      sync.Mutex
	tried   time.Time // time of the last read, by the machine's clock
	failed  bool      // the last read failed
	once    bool      // a read succeeded
	workers map[string]sighting
}

// A sighting is a worker's last record, and its rates since the record before.
type sighting struct {
	worker store.Worker
	paces  paces
	paced  bool
}

// paces are rates in a second.
type paces struct{ increments, entries, commits, entities float64 }

func (ro *roster) fetched() bool {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	return ro.once
}

// look returns the present state, and whether it is time for another read.
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

// next takes the worker's newer record. The time between two records is the difference of their
// expiries. The time between two reads would be wrong: one or two heartbeats may lie in it.
func (s sighting) next(w store.Worker) sighting {
	between := w.Expires.Sub(s.worker.Expires).Seconds()
	switch {
	case s.worker.ID == "" || w.Entries < s.worker.Entries || w.Commits < s.worker.Commits: // new, or restarted
		return sighting{worker: w}
	case between < 0: // a clock was set back: the rates are unknown
		return sighting{worker: w}
	case between == 0: // the same record, or of a worker that restarted at the same moment
		s.worker = w
		return s
	}
	pace := func(now, before int64) float64 { return float64(now-before) / between }
	return sighting{worker: w, paced: true, paces: paces{
		increments: pace(w.Increments, s.worker.Increments), entries: pace(w.Entries, s.worker.Entries),
		commits: pace(w.Commits, s.worker.Commits), entities: pace(w.Entities, s.worker.Entities),
	}}
}

func (ro *roster) pipelineLocked(storeNow time.Time) Pipeline {
	p, fresh := Pipeline{RatesKnown: true, Unread: ro.failed}, 0
	for id, s := range ro.workers {
		if !s.worker.Expires.After(storeNow) {
			if storeNow.Sub(s.worker.Expires) < store.WorkerLate {
				p.Late = append(p.Late, id)
			}
			continue
		}
		fresh++
		if !s.worker.Stalled {
			p.Workers++
		}
		p.Lag = max(p.Lag, s.worker.Lag)
		p.settings(s.worker.Settings)
		p.count(&s.worker)
		p.pace(s.paces)
		p.RatesKnown = p.RatesKnown && s.paced
	}
	slices.Sort(p.Late)
	if fresh == 0 || !p.RatesKnown {
		p.Increments, p.Entries, p.Commits, p.Entities, p.RatesKnown = 0, 0, 0, 0, false
	}
	return p
}

func (p *Pipeline) count(w *store.Worker) {
	p.Folded += w.Increments
	p.Written += w.Entities
	p.Duplicates += w.Duplicates
	p.DeadLetters += w.DeadLetters
}

func (p *Pipeline) pace(s paces) {
	p.Increments += s.increments
	p.Entries += s.entries
	p.Commits += s.commits
	p.Entities += s.entities
}

// fresh returns copies: nobody changes the roster through them.
func (ro *roster) fresh(storeNow time.Time) []store.Worker {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	var all []store.Worker
	for _, s := range ro.workers {
		if s.worker.Expires.After(storeNow) {
			all = append(all, s.worker)
		}
	}
	slices.SortFunc(all, func(a, b store.Worker) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// busiest adds up the lists of the aggregators with fresh records.
func (ro *roster) busiest(storeNow time.Time) []store.Busy {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	rates := make(map[string]float64)
	for _, s := range ro.workers {
		if !s.worker.Expires.After(storeNow) {
			continue
		}
		for _, b := range s.worker.Busiest {
			rates[b.Counter] += b.Rate
		}
	}
	all := make([]store.Busy, 0, len(rates))
	for counter, rate := range rates {
		all = append(all, store.Busy{Counter: counter, Rate: rate})
	}
	slices.SortFunc(all, func(a, b store.Busy) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), strings.Compare(a.Counter, b.Counter))
	})
	return slices.Clip(all[:min(len(all), store.MaxBusiest)])
}

func (p *Pipeline) settings(version int64) {
	if version > 0 && (p.OldestSettings == 0 || version < p.OldestSettings) {
		p.OldestSettings = version
	}
	p.NewestSettings = max(p.NewestSettings, version)
}
