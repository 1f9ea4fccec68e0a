package letters

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A Letter is a part or message that was set aside because it could not be counted.
type Letter struct {
	Key     string
	Payload []byte
	Source  string    // the part's id in hex, or the broker's message id
	Time    time.Time // what the deduplication window is judged by
	Reason  string
	Maybe   bool      // it was maybe counted before it was set aside
	Taken   bool      // its id was counted with other increments
	At      time.Time // when that was
	Asked   bool      // a replay was asked for and is not done yet

	// Discarded is set where it was discarded before, and has been set aside again since.
	Discarded bool
}

// A Store keeps letters. Concurrent calls are allowed.
type Store interface {
	// Page returns up to limit letters whose keys come after after, in the order of their
	// keys.
	Page(ctx context.Context, after string, limit int) ([]Letter, error)

	// Find returns the letters with these keys, in the order asked; absent ones are left
	// out.
	Find(ctx context.Context, keys []string) ([]Letter, error)

	// Ask has aggregators count what a letter holds, as it is given here, and then remove
	// the letter of that key. It may be repeated; the last word counts.
	Ask(ctx context.Context, letter Letter) error

	// Discard removes a letter and its replay request. uncounted is false if an aggregator has
	// taken the letter to count it: it was counted, or may still be. Otherwise no aggregator
	// counts it any more, even one that has read it. The store must remember that for as long as
	// it does a part of the time latest, by the settings s. It may be repeated.
	Discard(ctx context.Context, key string, latest time.Time, s store.Settings) (uncounted bool, err error)

	// Settings are those in effect.
	Settings(ctx context.Context) (store.Settings, error)
}

// How a letter can be replayed.
const (
	ByIDs = "ids"    // under its own ids and time
	AsNew = "as_new" // under new ids only
	Never = "never"
)

// Contents are what a letter holds.
type Contents struct {
	// Batch is nil where the letter cannot be read.
	Batch *wire.Batch
	// JSON is set for a message of another language. The ids in its batch are not those
	// that it had on the bus.
	JSON bool
	// Replay says how it can be replayed, and Why why not in a better way.
	Replay, Why string
	// Twice is set where it may have been counted before, and no marker need be left of that.
	Twice bool
}

// read says what a letter holds. Ids of letters beyond the window are forgotten.
func read(d *Letter, s store.Settings, now time.Time) Contents {
	c := contentsOf(d, s.Window)
	switch {
	case c.Replay == Never:
	case d.Discarded:
		c.Replay, c.Why = Never, "it was discarded, and set aside again since: it is not counted any more"
	case s.Refuses(d.Time):
		c.Replay, c.Twice = AsNew, true // even if it was not applied before it was set aside: its message may have come again
		if !c.JSON || c.Why == "" {
			c.Why = "beyond the deduplication window of " + s.Window.String() + ": its ids are forgotten"
		}
	case c.Replay == AsNew:
	case d.Taken:
		c.Replay, c.Why = AsNew, "its id was counted with other increments"
	case isAhead(c.Batch, now):
		c.Replay, c.Why = AsNew, "its time is more than "+store.MaxAhead.String()+" ahead"
	}
	return c
}

// isAhead reports whether an aggregator would set a part aside for its time.
func isAhead(b *wire.Batch, now time.Time) bool {
	return slices.ContainsFunc(b.Parts, func(p wire.Part) bool { return timeOf(&p, b).After(now.Add(store.MaxAhead)) })
}

func timeOf(p *wire.Part, b *wire.Batch) time.Time {
	if p.Time.IsZero() {
		return b.Time
	}
	return p.Time
}

func contentsOf(d *Letter, window time.Duration) Contents {
	batch, err := wire.Decode(d.Payload)
	if err == nil {
		return Contents{Batch: batch, Replay: ByIDs}
	}
	if errors.As(err, new(wire.NewerError)) {
		return Contents{Replay: Never, Why: err.Error() + ": ask a server of that version for it"}
	}
	incs, jsonErr := wire.DecodeJSON(d.Payload, wire.JSON, d.Time, window)
	if jsonErr == nil {
		batch, jsonErr = wire.CutMessage("dead letter", d.Key, d.Time, incs)
	}
	switch {
	case jsonErr != nil && looksLikeJSON(d.Payload):
		return Contents{JSON: true, Replay: Never, Why: jsonErr.Error()}
	case jsonErr != nil:
		return Contents{Replay: Never, Why: err.Error()}
	case len(batch.Parts) == 0:
		return Contents{JSON: true, Replay: Never, Why: "its increments cancel out"}
	case allIdentified(incs):
		return Contents{Batch: batch, JSON: true, Replay: ByIDs}
	}
	return Contents{Batch: batch, JSON: true, Replay: AsNew, Why: "the id that the message had on the bus is lost", Twice: d.Maybe}
}

func looksLikeJSON(payload []byte) bool {
	for _, c := range payload {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == '{' || c == '['
		}
	}
	return false
}

// allIdentified reports whether no part of a message needs the message's id.
func allIdentified(incs []countmill.Increment) bool {
	for _, inc := range incs {
		if inc.ID == "" {
			return false
		}
	}
	return true
}

// renew returns the letter's parts as a batch that can be counted now. Parts keep their ids:
// the markers of a replay, of a replay as new and of the message itself then exclude each
// other. Only a part whose id is taken gets another one, the same each time. A part keeps its
// time if that is accepted: a marker that it left before expires later.
func renew(d *Letter, b *wire.Batch, s store.Settings, now time.Time) *wire.Batch {
	now = now.Truncate(time.Microsecond)
	fresh := &wire.Batch{Time: now}
	for _, p := range about(d, b) {
		at := timeOf(&p, b)
		p.Minute = b.Minute(&p) // whatever its time will be
		if !d.Time.IsZero() && d.Time.Before(at) {
			at = d.Time
		}
		if p.Time = at; s.Refuses(at) || at.After(now.Add(store.MaxAhead)) {
			p.Time = now
		}
		if d.Taken {
			if p = underAnother(p, d.Source); len(p.Entries) == 0 {
				continue
			}
		}
		fresh.Parts = append(fresh.Parts, p)
	}
	return fresh
}

// underAnother is a part of a letter about an id that is taken. An increment with an id beside
// it was refused with it, and has its own id still.
func underAnother(p wire.Part, taken string) wire.Part {
	if p.Kind == wire.IdentifiedRest && p.ID.String() != taken {
		p.Kind, p.Request = wire.Identified, 0
		return p
	}
	return wire.Part{Kind: wire.Renewed, ID: wire.RenewedID(&p), Minute: p.Minute, Time: p.Time, Entries: p.Entries}
}

// about is the parts that the letter is about. One about a part that follows a head begins with
// a copy of that head, which was counted. The parts behind it need its marker only.
func about(d *Letter, b *wire.Batch) []wire.Part {
	for i := range b.Parts {
		if b.Parts[i].ID.String() != d.Source {
			continue
		}
		if i == 0 || !b.Parts[i].Kind.Follows() {
			return b.Parts[i:]
		}
		head := b.Parts[0]
		head.Entries = nil
		return append([]wire.Part{head}, b.Parts[i:]...)
	}
	return b.Parts
}
