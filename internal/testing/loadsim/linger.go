package loadsim

import "time"

// A linger says how long windows stay open.
type linger interface {
	window() time.Duration
	// ended takes in how each commit ended, and how often it was aborted before.
	ended(ok bool, aborted int)
}

// fixed is a window that does not change.
type fixed time.Duration

func (f fixed) window() time.Duration { return time.Duration(f) }
func (f fixed) ended(bool, int)       {}

// widening waits longer while commits are aborted more than once, and comes back slowly.
type widening struct{ least, most, more time.Duration }

func (w *widening) window() time.Duration { return w.least + w.more }

func (w *widening) ended(ok bool, aborted int) {
	switch {
	case !ok && aborted > 1:
		w.more = min(max(2*w.more, w.least), w.most)
	case ok && aborted == 0:
		if w.more -= w.more / 32; w.more < w.least/8 {
			w.more = 0
		}
	}
}
