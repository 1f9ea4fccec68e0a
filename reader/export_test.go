package reader

import (
	"context"
	"time"
)

// Lag returns Pipeline's Lag, and whether it is known.
func (r *Reader) Lag(ctx context.Context) (lag time.Duration, known bool) {
	p := r.Pipeline(ctx)
	return p.Lag, p.LagKnown()
}

// SmallBoards makes boards of so many candidates.
func (c Config) SmallBoards(size int) Config {
	c.boardSize = size
	return c
}

// Remembered are the counters whose numbers of shards are remembered.
func (r *Reader) Remembered() []string { return r.shards.Keys() }
