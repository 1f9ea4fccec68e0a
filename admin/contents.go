package admin

import (
	"errors"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// How a dead letter can be replayed.
const (
	ReplayByIDs = "ids"    // under its own ids and time
	ReplayAsNew = "as_new" // under new ids only
	ReplayNever = "never"
)

// Contents are the contents of a dead letter.
type Contents struct {
	// Batch is nil if the dead letter cannot be read.
	Batch *wire.Batch
	// JSON is set for a message of another language. The ids in its batch differ from its ids
	// on the bus.
	JSON bool
	// Replay says how it can be replayed, and Why why not in a better way.
	Replay, Why string
	// Twice is set if it may have been counted before, and its marker may be gone.
	Twice bool
}

// read returns the contents of a dead letter. Beyond the window its ids are forgotten.
func read(d *DeadLetter, s store.Settings, now time.Time) Contents {
	c := contentsOf(d, s.Window)
	switch {
	case c.Replay == ReplayNever:
	case d.Discarded:
		c.Replay, c.Why = ReplayNever, "it was discarded, and set aside again since: it is not counted any more"
	case s.Refuses(d.Time):
		c.Replay, c.Twice = ReplayAsNew, true // even if it was not applied before it was set aside: its message may have come again
		if !c.JSON || c.Why == "" {
			c.Why = "beyond the deduplication window of " + s.Window.String() + ": its ids are forgotten"
		}
	case c.Replay == ReplayAsNew:
	case d.IDTaken():
		c.Replay, c.Why = ReplayAsNew, "its id was counted with other increments"
	case isAhead(c.Batch, now):
		c.Replay, c.Why = ReplayAsNew, "its time is more than "+store.MaxAhead.String()+" ahead"
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

func contentsOf(d *DeadLetter, window time.Duration) Contents {
	batch, err := wire.Decode(d.Payload)
	if err == nil {
		return Contents{Batch: batch, Replay: ReplayByIDs}
	}
	if errors.As(err, new(wire.NewerError)) {
		return Contents{Replay: ReplayNever, Why: err.Error() + ": ask a server of that version for it"}
	}
	incs, jsonErr := wire.DecodeJSON(d.Payload, wire.JSON, d.Time, window)
	if jsonErr == nil {
		batch, jsonErr = wire.CutMessage("dead letter", d.Key, d.Time, incs)
	}
	switch {
	case jsonErr != nil && wire.IsJSON(d.Payload):
		return Contents{JSON: true, Replay: ReplayNever, Why: jsonErr.Error()}
	case jsonErr != nil:
		return Contents{Replay: ReplayNever, Why: err.Error()}
	case len(batch.Parts) == 0:
		return Contents{JSON: true, Replay: ReplayNever, Why: "its increments cancel out"}
	case !slices.ContainsFunc(incs, func(inc countmill.Increment) bool { return inc.ID == "" }):
		return Contents{Batch: batch, JSON: true, Replay: ReplayByIDs}
	}
	return Contents{Batch: batch, JSON: true, Replay: ReplayAsNew, Why: "the id that the message had on the bus is lost", Twice: d.Maybe}
}

// renew returns the dead letter's parts as a batch that can be counted now. Parts keep their ids:
// the markers of a replay, of a replay as new and of the message itself then exclude each
// other. Only a part whose id is taken gets another one, the same each time. A part keeps its
// time if that is accepted: a marker that it left before expires later.
func renew(d *DeadLetter, b *wire.Batch, s store.Settings, now time.Time) *wire.Batch {
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
		if d.IDTaken() {
			if p = underAnother(p, d.Source); len(p.Entries) == 0 {
				continue
			}
		}
		fresh.Parts = append(fresh.Parts, p)
	}
	return fresh
}

// underAnother is a part of a dead letter about an id that is taken. An increment with an id beside
// it was refused with it, and has its own id still.
func underAnother(p wire.Part, taken string) wire.Part {
	if p.Kind == wire.IdentifiedFollower && p.ID.String() != taken {
		p.Kind, p.Request = wire.Identified, 0
		return p
	}
	return wire.Part{Kind: wire.Renewed, ID: wire.RenewedOf(p.ID, p.Fingerprint()), Minute: p.Minute, Time: p.Time, Entries: p.Entries}
}

// about is the parts that the dead letter is about. One about a part that follows a head begins with
// a copy of that head, which was counted. The parts behind it need its marker only.
func about(d *DeadLetter, b *wire.Batch) []wire.Part {
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
