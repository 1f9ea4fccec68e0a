package embedded

import (
	"context"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// Next returns the next values of a sequence when they are on disk. No value is given to two requests,
// also if the process is killed. Calls at the same time share a write. You may repeat a request with an
// ID after any error: it gets the same values. Package sequence has the promise and the errors.
func (db *DB) Next(ctx context.Context, r countmill.NextRequest) (countmill.Values, error) {
	v, err := db.sequences.Next(ctx, r)
	return v, db.ended(err)
}

// Sequence returns the last value of a sequence.
func (db *DB) Sequence(ctx context.Context, sequence string) (store.SequenceState, error) {
	state, err := db.sequences.State(ctx, sequence)
	return state, db.ended(err)
}

// DeleteSequence marks a sequence as deleted, and returns its state before. Its last value stays, so no
// value is given again.
func (db *DB) DeleteSequence(ctx context.Context, sequence string) (store.SequenceState, error) {
	state, err := db.sequences.Delete(ctx, sequence)
	return state, db.ended(err)
}
