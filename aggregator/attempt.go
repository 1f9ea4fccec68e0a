package aggregator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countmill/countmill/internal/shards"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A verdict says what to do with the parts of a job that are not settled yet.
type verdict int

const (
	settled    verdict = iota // no part is left
	again                     // try the rest at once: nothing was applied, and the parts with markers are dropped
	outdated                  // try after the next check: the settings are too old, and nothing was applied
	blocked                   // try when another commit of this process has ended: no shard is free
	superseded                // try after a check: the store has newer rules, and nothing was applied
	split                     // try in halves at once: the commit does not fit a limit
	refused                   // try in halves, or set aside: the store refuses the content for good
	alone                     // try each part in a commit of its own: nothing was applied, and no marker was found
	unreached                 // try later: a look-up or a growth failed, or the commit never began
	unknown                   // try later with the same markers: maybe applied
	stuck                     // try later: the deployment is wrong, and a person has to act
	ignored                   // stop folding: the store answers OK and does not add
)

// An outcome is the result of one attempt at a job.
type outcome struct {
	job         *job
	applied     []*part
	duplicates  []*part // applied before, by any aggregator
	conflicts   []conflict
	rest        []*part
	completions []*part // of the job, not applied
	completed   []*part // completions that are in the store
	verdict     verdict
	err         error
	wants       []store.Growth // counters that need more shards than this process knew of
	freed       int64          // inflight.freed before the attempt asked for shards
	work        work
}

// A conflict is a part whose id was applied with other increments.
type conflict struct {
	*part
	applied wire.Fingerprint
}

// work counts the calls and entities of an attempt.
type work struct {
	commits, contended, written, read, raised, entries, overflowed int
	increments                                                     int64
}

// attempt tries a job once. It runs beside the loop and touches none of the loop's state.
func (a *Aggregator) attempt(j *job) (o outcome) {
	o = outcome{job: j, rest: j.parts, completions: j.completions}
	if j.lookup && !a.dropApplied(&o) {
		return o
	}
	if len(o.rest) == 0 {
		return o
	}
	c := a.sumsOf(o.rest)
	records, growths, ok := a.learn(&o, c.adds)
	if !ok {
		return o
	}
	o.freed = a.inflight.freed.Load()
	var t taken
	if len(j.taken) > 0 {
		t = a.inflight.await(c.adds, records.shards)
	} else if t, ok = a.inflight.acquire(c.adds, records.shards); !ok {
		o.verdict = blocked
		return o
	}
	got := a.fold(&o, t, &c, growths, &records, a.settings.Load())
	o.wants = a.inflight.release(t, got)
	return o
}

// withoutCommit is the verdict after an error of a call that applies nothing.
func withoutCommit(err error) verdict {
	if errors.Is(err, store.ErrDeployment) {
		return stuck
	}
	return unreached
}

// learn returns the number of shards of each counter, and the growths that the commit must apply
// itself (store.Limits.GrowsInFold).
func (a *Aggregator) learn(o *outcome, adds []store.ShardDelta) (known, []store.Growth, bool) {
	if a.limits.GrowsInFold {
		k, growths := a.records.guess(adds)
		return k, growths, true
	}
	young := store.RememberFor
	if o.job.contended && !a.inflight.fixed {
		young = contendedFor
	}
	k, cost, err := a.records.learn(a.calls, adds, young)
	o.work.read += cost.read
	o.work.written += cost.raised
	o.work.raised += cost.raised
	if err != nil {
		// The growth may have happened, but no part was applied.
		o.err, o.verdict = err, withoutCommit(err)
		return known{}, nil, false
	}
	return k, nil, true
}

// fold commits the rest of the job and interprets the answer. It uses one snapshot of the
// settings, both for the markers and to refuse old parts.
func (a *Aggregator) fold(o *outcome, t taken, x *tally, growths []store.Growth, records *known, s *snapshot) (got answer) {
	o.completions = slices.DeleteFunc(slices.Clone(o.completions), s.refuses)
	// Missing records are written in the commit: readers ignore a shard that no record names.
	c := store.Commit{Adds: t.adds, KnownShards: t.known, Tally: shards.Floor(a.clock.Now()), Markers: a.markers(slices.Concat(o.rest, o.completions), s), Growths: growths, Taken: o.job.taken}
	// Totals and series are one commit, under the same markers.
	c.Buckets, c.Grouped, c.Archive, c.Rules, c.Restores = x.buckets, x.grouped, o.job.archive, x.version, x.restores
	defer a.record(&c, o, x, s)()
	// A store that refuses old rules sees even an empty commit: by newer rules its parts may be evidence.
	if c.Entities() == 0 && len(c.Taken) == 0 && !a.limits.RefusesOldRules {
		o.settle()
		return got
	}
	// Checked before the attempt, and again here. The process may have been frozen since, for
	// longer than another aggregator's marker is kept, or than a record may be remembered.
	if slices.ContainsFunc(o.rest, s.refuses) {
		o.verdict = again
		return got
	}
	aged := a.aging.age()
	switch {
	case a.records.tooOld(records.asked, aged):
		o.verdict = again
		return got
	case s.outdated(aged):
		o.verdict = outdated
		return got
	case s.Version != x.version: // the rules may have changed since the sums were made
		o.verdict = again
		return got
	case a.tooLarge(o, &c): // the rules have changed since the job was packed
		o.verdict = split
		return got
	}
	ctx, cancel := a.callContext()
	defer cancel()
	started, began := time.Now(), a.clock.Moment()
	// One commit has the sums and their markers: the store applies both or neither.
	folded, err := a.store.Fold(ctx, &c)
	took := time.Since(started)
	got = answer{asked: true, took: took, err: err}
	if a.cfg.OnFold != nil {
		a.cfg.OnFold(took)
	}
	o.work.commits++
	if err == nil {
		got.told = folded.Shards
		a.clock.Learn(folded.At, began)
		a.records.remember(growths, aged, records.forgotten)
		o.work.written += c.Entities()
		o.work.raised += len(growths)
		o.work.overflowed += x.overflowed
		for _, p := range o.rest {
			o.work.entries += len(p.Entries)
			o.work.increments += p.CountIncrements()
		}
		a.busiest.note(c.Adds)
		o.settle()
		return got
	}
	o.err = err
	switch {
	case errors.Is(err, store.ErrMarkerExists):
		// Some parts were applied before. The others were not.
		a.afterMarkerExists(o)
	case errors.Is(err, store.ErrRefused):
		o.verdict = refused
	case errors.Is(err, store.ErrDeployment):
		o.verdict = stuck
	case errors.Is(err, store.ErrNotCounted):
		// Nothing was added, although the store answered OK.
		o.verdict = ignored
	case errors.Is(err, store.ErrOutdated):
		o.verdict = superseded
	case errors.Is(err, store.ErrNotApplied):
		o.verdict = unreached
	default:
		// Maybe applied, also if the store gave up because of contention.
		if o.verdict = unknown; errors.Is(err, store.ErrContended) {
			o.work.contended++
		}
	}
	return got
}

// tooLarge reports whether the store would refuse the commit for its size, and not a smaller one with
// the same parts.
func (a *Aggregator) tooLarge(o *outcome, c *store.Commit) bool {
	return a.limits.Entities > 0 && c.Entities() > a.limits.Entities && len(o.rest)+len(o.completions) > 1
}

// afterMarkerExists drops the parts that are applied already. If no marker is found, the store
// does not say which one it refused, so each part is tried alone.
func (a *Aggregator) afterMarkerExists(o *outcome) {
	before := len(o.rest) + len(o.completions)
	if !a.dropApplied(o) {
		return
	}
	switch {
	case len(o.rest) == 0:
		o.verdict = settled
	case len(o.rest)+len(o.completions) < before:
		o.verdict = again
	default:
		o.verdict = alone
	}
}

// settle notes that the rest was applied, in addition to the parts that a look-up has found.
func (o *outcome) settle() {
	o.applied, o.rest = append(o.applied, o.rest...), nil
	o.completed, o.completions = append(o.completed, o.completions...), nil
}

func (a *Aggregator) markers(parts []*part, s *snapshot) []store.Marker {
	now := a.clock.Now()
	markers := make([]store.Marker, 0, len(parts))
	for _, p := range parts {
		if !p.marked {
			continue
		}
		at := p.at
		// A part from the future keeps its marker until ForgetBefore reaches its own time.
		if now.After(at) {
			at = now
		}
		// Each attempt uses the same id, so the marker of an earlier one stops a later one.
		markers = append(markers, store.Marker{
			ID: p.ID, Fingerprint: p.fingerprint, Fold: p.fold, At: at, ExpireAt: s.Expiry(now, p.at),
		})
	}
	return markers
}

// dropApplied looks up the markers of the job's parts, and removes the parts with a marker from
// the rest. It reports false if the look-up failed.
func (a *Aggregator) dropApplied(o *outcome) bool {
	found := make(map[wire.PartID]store.Marker)
	var ids []wire.PartID
	for _, p := range slices.Concat(o.rest, o.completions) {
		if p.marked {
			ids = append(ids, p.ID)
		}
	}
	if len(ids) == 0 {
		return true
	}
	for chunk := range slices.Chunk(ids, a.limits.Keys) {
		markers, err := a.applied(chunk)
		o.work.read += len(chunk)
		if err != nil {
			o.err, o.verdict = err, withoutCommit(err)
			return false
		}
		for _, m := range markers {
			found[m.ID] = m
		}
	}
	var rest []*part
	for _, p := range o.rest {
		m, ok := found[p.ID]
		switch {
		case !ok || !p.marked:
			rest = append(rest, p)
		case p.isCompletion(): // even if it says something else of the parts: its first insert was right
			o.duplicates = append(o.duplicates, p)
		// The same id with other deltas: this part was never applied.
		case m.Fingerprint != p.fingerprint:
			o.conflicts = append(o.conflicts, conflict{p, m.Fingerprint})
		case m.Fold == p.fold:
			o.applied = append(o.applied, p)
			o.work.entries += len(p.Entries)
			o.work.increments += p.CountIncrements()
		default: // Applied from another delivery, by any aggregator.
			o.duplicates = append(o.duplicates, p)
		}
	}
	o.dropCompletions(found)
	if len(rest) < len(o.rest) {
		o.completions = nil // some parts go other ways from here on
	}
	o.rest = rest
	return true
}

func (a *Aggregator) applied(ids []wire.PartID) ([]store.Marker, error) {
	ctx, cancel := a.callContext()
	defer cancel()
	return a.store.Applied(ctx, ids)
}

// callContext bounds a call to the store. It does not end with the context of Run: a stop request
// must not abort the commit that it waits for.
func (a *Aggregator) callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.calls, a.cfg.CommitTimeout)
}
