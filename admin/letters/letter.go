package letters

import (
	"context"
	"errors"
	"fmt"
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

	// Discard removes letters, and takes back what was asked for them. It may be repeated.
	Discard(ctx context.Context, keys []string) error

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
}

// read says what a letter holds. Ids of letters beyond the window are forgotten.
func read(d *Letter, s store.Settings) Contents {
	c := contentsOf(d, s.Window)
	switch {
	case c.Replay != ByIDs:
	case s.Refuses(d.Time):
		c.Replay, c.Why = AsNew, "beyond the deduplication window of "+s.Window.String()+": its ids are forgotten"
	case d.Taken:
		c.Replay, c.Why = AsNew, "its id was counted with other increments"
	}
	return c
}

func contentsOf(d *Letter, window time.Duration) Contents {
	batch, err := wire.Decode(d.Payload)
	if err == nil {
		return Contents{Batch: batch, Replay: ByIDs}
	}
	if errors.As(err, new(wire.NewerError)) {
		return Contents{Replay: Never, Why: fmt.Sprintf("%v: the first aggregator that can read it counts it by itself", err)}
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
	return Contents{Batch: batch, JSON: true, Replay: AsNew, Why: "the id that the message had on the bus is lost"}
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

// renewed is what a letter holds, as a batch of now under new ids.
func renewed(d *Letter, b *wire.Batch, now time.Time) *wire.Batch {
	fresh := &wire.Batch{Time: now.Truncate(time.Microsecond)}
	for _, p := range about(d, b) {
		if len(p.Entries) == 0 {
			continue // a head whose increments all have ids of their own
		}
		fresh.Parts = append(fresh.Parts, wire.Part{ID: wire.RenewedID(&p), Entries: p.Entries})
	}
	return fresh
}

// about is the parts that the letter is about. One about a part that follows a head
// begins with a copy of that head, which was counted, or has a letter of its own.
func about(d *Letter, b *wire.Batch) []wire.Part {
	for i := range b.Parts {
		if b.Parts[i].ID.String() == d.Source {
			return b.Parts[i:]
		}
	}
	return b.Parts
}
