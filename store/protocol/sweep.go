package protocol

import "sync"

// Rounds are the deleted counters that earlier sweeps of this process have found, and how often in a row.
type rounds struct {
	mu    sync.Mutex
	found map[string]int
}
