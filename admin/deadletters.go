package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const (
	// MaxDeadLetterPage is the most dead letters of a page, MaxDeadLetterKeys the most keys of
	// one replay or discard.
	MaxDeadLetterPage = 1000
	MaxDeadLetterKeys = 100

	// lot is how many dead letters are in memory at once: one may have 10 MB.
	lot = 5
	// maxRead is how many bytes of dead letters are read for a page: it may end early.
	maxRead = 32 << 20
)

// A DeadLetterStore is the part of a store that DeadLetters needs. The folder decides about
// dead letters that are discarded, the meta has the settings.
type DeadLetterStore interface {
	store.DeadLetters
	store.Folder
	Check(ctx context.Context) (store.Checked, error)
}

// A DeadLetter is a part or message that was set aside because it could not be counted.
type DeadLetter struct {
	store.DeadLetter

	// Asked is set if a replay was asked for and is not done yet.
	Asked bool
	// Discarded is set if it was discarded before, and has been set aside again since.
	Discarded bool
}

// DeadLetters shows the dead letters of a store, replays and discards them. It is safe for
// concurrent use and has nothing to close.
//
// A replay is a request: an aggregator counts the contents of the dead letter and then removes
// it, within half a minute or so. Until then the dead letter stays. It also stays if it cannot
// be counted.
//
//   - Under its own ids and time a dead letter counts once, however often it is replayed, and
//     not at all if it was counted before. That is safe in every case.
//   - Beyond the deduplication window ids are forgotten. A time that is a day ahead is refused.
//     A message of another language loses its id when Pub/Sub moves it aside, and an id that was
//     used with other deltas is taken. Such dead letters count only as new: with the time of the
//     request if theirs is refused. If their id is taken they get another one, made of the old
//     id and of the contents of the part.
//   - All requests for one dead letter count it once together: they leave the same markers. As
//     new it counts a second time if its marker was forgotten. DeadLetterOutcome.Twice says
//     if that is possible.
//
// A dead letter whose discard answers ResultDiscarded is never counted. The decision is made
// once, by the discard or by the aggregator that counts it. If the aggregator was first the
// answer is ResultRemoved.
//
// Each call reads a bounded number of dead letters, and of bytes.
type DeadLetters struct {
	waiting waiting
	env     *clock.Env // of a simulation (clock.With), otherwise nil
}

var _ = clock.Hook(func(l **DeadLetters, e *clock.Env) { (*l).env = e })

// NewDeadLetters returns the DeadLetters of a store.
func NewDeadLetters(st DeadLetterStore) *DeadLetters { return &DeadLetters{waiting: waiting{st}} }

// A DeadLetterPage holds dead letters in the order of their keys.
type DeadLetterPage struct {
	DeadLetters []DeadLetter
	Bytes       []int  // of each; payloads are left out
	Next        string // List takes it as after for the next page; empty at the end
}

// List returns dead letters whose keys come after after: at most limit of them (1 to
// MaxDeadLetterPage), and fewer if they are large.
func (l *DeadLetters) List(ctx context.Context, after string, limit int) (DeadLetterPage, error) {
	var p DeadLetterPage
	for bytes := 0; ; {
		n := min(lot, limit+1-len(p.DeadLetters)) // one more shows whether there is more
		found, err := l.waiting.page(ctx, after, n)
		if err != nil {
			return DeadLetterPage{}, unavailable("listing dead letters", err)
		}
		for _, d := range found {
			if len(p.DeadLetters) == limit || bytes > maxRead {
				p.Next = p.DeadLetters[len(p.DeadLetters)-1].Key
				return p, nil
			}
			bytes += len(d.Payload)
			p.Bytes = append(p.Bytes, len(d.Payload))
			after, d.Payload = d.Key, nil
			p.DeadLetters = append(p.DeadLetters, d)
		}
		if len(found) < n {
			return p, nil
		}
	}
}

// Show returns one dead letter and its contents; found is false if there is none.
func (l *DeadLetters) Show(ctx context.Context, key string) (d DeadLetter, c Contents, found bool, err error) {
	some, err := l.waiting.find(ctx, []string{key})
	if err != nil {
		return d, c, false, unavailable("looking a dead letter up", err)
	}
	if len(some) == 0 {
		return d, c, false, nil
	}
	s, err := l.settings(ctx)
	if err != nil {
		return d, c, false, err
	}
	return some[0], read(&some[0], s, l.env.Now()), true, nil
}

// The results of a replay or a discard.
const (
	ResultAsked     = "asked"     // aggregators count it
	ResultRefused   = "refused"   // it cannot be replayed, or not in this way; Why says why
	ResultGone      = "gone"      // there is no such dead letter: counted, discarded, or never there
	ResultDiscarded = "discarded" // it was there and is not any more: it is not counted
	ResultRemoved   = "removed"   // the same, but it may have been counted, or be; Why says why
)

// A DeadLetterOutcome is the result for one dead letter.
type DeadLetterOutcome struct {
	Key    string
	Result string
	Why    string
	// New is true if it is counted as new: with the time of the request, and under other ids if
	// its own are taken or lost. With Twice it may have been counted before, and its marker may
	// be gone.
	New, Twice bool
}

// Replay asks for dead letters to be counted. It refuses a dead letter that can no longer count
// under its own ids and times, unless asNew has it counted as new. Errors match
// countmill.ErrUnavailable or countmill.ErrOutcomeUnknown; you may repeat Replay after both.
func (l *DeadLetters) Replay(ctx context.Context, keys []string, asNew bool) ([]DeadLetterOutcome, error) {
	s, err := l.settings(ctx)
	if err != nil {
		return nil, err
	}
	return l.each(ctx, keys, func(d *DeadLetter) (DeadLetterOutcome, error) {
		o, request := plan(d, s, asNew, l.env.Now())
		if o.Result != ResultAsked {
			return o, nil
		}
		return o, l.waiting.ask(ctx, request)
	})
}

// settings are those of the store; the aggregators, which read them later, have the last word.
func (l *DeadLetters) settings(ctx context.Context) (store.Settings, error) {
	checked, err := l.waiting.Check(ctx)
	return checked.Settings, unavailable("reading the settings", err)
}

// plan decides how a dead letter is to be counted.
func plan(d *DeadLetter, s store.Settings, asNew bool, now time.Time) (DeadLetterOutcome, store.DeadLetter) {
	o, request := DeadLetterOutcome{Key: d.Key, Result: ResultAsked}, d.DeadLetter
	c := read(d, s, now)
	switch {
	case c.Replay == ReplayNever:
		o.Result, o.Why = ResultRefused, c.Why
	case c.Replay == ReplayAsNew && !asNew:
		o.Result, o.Why = ResultRefused, c.Why+"; it can only be counted as new"
	case c.Replay == ReplayAsNew: // not other dead letters: beside a plain replay they would count twice
		fresh := renew(d, c.Batch, s, now)
		if fresh.Entries() == 0 {
			o.Result, o.Why = ResultRefused, "it holds no increments"
			return o, request
		}
		o.New, o.Twice = true, c.Twice
		request.Payload, request.Time = wire.Append(nil, fresh), now
	case c.JSON:
		request.Payload = wire.Append(nil, c.Batch)
	}
	request.At = now
	return o, request
}

// Discard removes dead letters for good. One with ResultDiscarded is never counted, even if a
// replay of it was under way. Errors are those of Replay.
func (l *DeadLetters) Discard(ctx context.Context, keys []string) ([]DeadLetterOutcome, error) {
	return l.each(ctx, keys, func(d *DeadLetter) (DeadLetterOutcome, error) {
		s, err := l.settings(ctx) // for each dead letter: the decision about it must not go by old ones
		if err != nil {
			return DeadLetterOutcome{}, err
		}
		uncounted, err := l.waiting.discard(ctx, d.Key, store.Latest(d.Time, l.env.Now()), s)
		if !uncounted {
			return DeadLetterOutcome{Key: d.Key, Result: ResultRemoved, Why: "an aggregator had taken it to count it: it was counted, or may still be"}, err
		}
		return DeadLetterOutcome{Key: d.Key, Result: ResultDiscarded}, err
	})
}

// each calls do for the dead letters that exist, few at a time.
func (l *DeadLetters) each(ctx context.Context, keys []string, do func(*DeadLetter) (DeadLetterOutcome, error)) ([]DeadLetterOutcome, error) {
	outcomes, changed := make([]DeadLetterOutcome, len(keys)), false
	for from := 0; from < len(keys); from += lot {
		some := keys[from:min(from+lot, len(keys))]
		found, err := l.waiting.find(ctx, some)
		if err != nil {
			if changed {
				return nil, changing("looking dead letters up", err, true)
			}
			return nil, unavailable("looking dead letters up", err)
		}
		byKey := make(map[string]*DeadLetter, len(found))
		for i := range found {
			byKey[found[i].Key] = &found[i]
		}
		for i, key := range some {
			o := DeadLetterOutcome{Key: key, Result: ResultGone}
			if d := byKey[key]; d != nil {
				if o, err = do(d); err != nil {
					return nil, changing("dead letter "+key, err, changed)
				}
				changed = changed || o.Result != ResultRefused
			}
			outcomes[from+i] = o
		}
	}
	return outcomes, nil
}

// unavailable is an error of the store in a call that may be repeated; nil for nil.
func unavailable(doing string, err error) error {
	if err == nil || errors.Is(err, countmill.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", countmill.ErrUnavailable, doing, err)
}

// changing is the same for a call that changes the store, or has done so: countmill.ErrOutcomeUnknown, unless certainly nothing was
// changed.
func changing(doing string, err error, changed bool) error {
	if err == nil || !changed && (errors.Is(err, store.ErrNotApplied) || errors.Is(err, countmill.ErrUnavailable)) {
		return unavailable(doing, err)
	}
	return fmt.Errorf("%w: %s: %v", countmill.ErrOutcomeUnknown, doing, err) // not %w: it says less
}
