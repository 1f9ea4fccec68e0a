package store

import (
	"context"
	"time"
)

// A DeadLetter is a part or message that could not be counted and waits for a person. Stores keep its
// JSON.
type DeadLetter struct {
	// Key is a hash of the source, the content and the reason. Writing the same letter again
	// therefore changes nothing.
	Key string `json:"-"`
	// Payload is the message as it arrived, or a batch of only the refused parts.
	Payload []byte `json:"-"`
	// Source is the part's id in hex or the broker's message id.
	Source string `json:"source,omitempty"`
	// Time is compared with Settings.ForgetBefore.
	Time time.Time `json:"time,omitzero"`
	// Reason is a sentence for the person who decides about the letter.
	Reason string `json:"reason,omitempty"`
	// Maybe is true if an earlier attempt may have been applied.
	Maybe bool `json:"maybe,omitempty"`
	// At is when the letter was set aside.
	At time.Time `json:"at,omitzero"`
	// DeadLetterRefs are written with the letter; no look-up of a letter returns them.
	DeadLetterRefs []DeadLetterRef `json:"-"`
}

// ReasonIDReused is the reason of a letter whose id was applied before with other increments.
const ReasonIDReused = "id reused: applied before with other counters or deltas"

// IDTaken reports whether the letter's id was applied with other increments. Under that id
// the letter is set aside again at every attempt.
func (d *DeadLetter) IDTaken() bool { return d.Reason == ReasonIDReused }

// DeadLetters keeps dead letters until a person replays or discards them, or until an
// aggregator of a newer version counts them. Concurrent calls are allowed.
type DeadLetters interface {
	// PutDeadLetters writes dead letters durably, and their DeadLetterRefs before them. It may be repeated: the
	// keys decide.
	PutDeadLetters(ctx context.Context, letters []DeadLetter) error

	// ListDeadLetters returns up to limit dead letters whose keys come after after, in the
	// order of their keys as bytes.
	ListDeadLetters(ctx context.Context, after string, limit int) ([]DeadLetter, error)

	// DeleteDeadLetters removes the letters with these keys, and ignores absent ones. It may
	// be repeated. The removal need not survive a crash: the aggregator reads a letter that
	// comes back once more.
	DeleteDeadLetters(ctx context.Context, keys []string) error

	// GetDeadLetters returns the dead letters with these keys in the order asked, without
	// absent ones.
	GetDeadLetters(ctx context.Context, keys []string) ([]DeadLetter, error)
}
