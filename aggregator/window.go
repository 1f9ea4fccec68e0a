package aggregator

import (
	"time"
)

// A window gathers parts that are packed together.
type window struct {
	parts    []*part
	messages int
	memory   int // of the messages, estimated in bytes
	opened   time.Time
	oldest   time.Time // when its oldest increment was added, by the same clock as opened
	counters hashSet   // the hashes (place) of the counters
	markers  int
}

func (w *window) empty() bool { return len(w.parts) == 0 }

func (w *window) add(p *part, now time.Time) {
	if w.empty() {
		w.opened, w.oldest = now, now
	}
	w.parts = append(w.parts, p)
	if p.marked {
		w.markers++
	}
	for i := range p.Entries {
		w.counters.add(place(p.Entries[i].Counter))
	}
}

// holds notes that the window has increments of the time born.
func (w *window) holds(born time.Time) {
	if born.Before(w.oldest) {
		w.oldest = born
	}
}

// full reports whether the window is at one of its bounds, and closes before its linger.
func (w *window) full(c *Config) bool {
	return w.messages >= c.WindowMessages || w.counters.n+w.markers >= c.WindowCounters || w.memory >= c.WindowMemory
}

// take empties the window and returns its parts.
func (w *window) take() []*part {
	parts := w.parts
	w.counters.clear()
	*w = window{counters: w.counters}
	return parts
}
