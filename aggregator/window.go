package aggregator

import (
	"time"

	"github.com/countmill/countmill/wire"
)

// A window gathers parts that are planned together.
type window struct {
	parts    []*part
	messages int
	bytes    int
	opened   time.Time
	counters hashSet // two counters of one hash count as one here
	markers  int
}

func (w *window) empty() bool { return len(w.parts) == 0 }

func (w *window) add(p *part, now time.Time) {
	if w.empty() {
		w.opened = now
	}
	w.parts = append(w.parts, p)
	if p.marked {
		w.markers++
	}
	for i := range p.Entries {
		w.counters.add(wire.HashCounter(p.Entries[i].Counter))
	}
}

// full reports whether the window closes before its linger.
func (w *window) full(c *Config) bool {
	return w.messages >= c.WindowMessages || w.counters.n+w.markers >= c.WindowCounters || w.bytes >= c.WindowBytes
}

// take empties the window and returns its parts.
func (w *window) take() []*part {
	parts := w.parts
	w.counters.clear()
	*w = window{counters: w.counters}
	return parts
}
