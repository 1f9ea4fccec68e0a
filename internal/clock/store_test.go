package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// bench is a clock whose machine's wall clock can be set, beside a store's.
type bench struct {
	Store
	set   time.Duration // the machine's wall clock minus the right time
	ahead time.Duration // the store's minus the right time
}

func newBench() *bench {
	b := &bench{}
	b.Env = &Env{Wall: func() time.Time { return time.Now().Add(b.set) }}
	return b
}

func (b *bench) store() time.Time { return time.Now().Add(b.ahead) }

// off is the difference between the clock and the store's.
func (b *bench) off() time.Duration { return b.Now().Sub(b.store()) }

func inBubble(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, newBench()) })
}

func TestKnowsNothingAtFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.set = time.Hour
		if b.Known() || b.Skew() != 0 || time.Until(b.Now()) != time.Hour {
			t.Errorf("known %t, skew %s, now %s off; want the machine's clock", b.Known(), b.Skew(), time.Until(b.Now()))
		}
		b.Learn(time.Time{}, b.Moment()) // a store on this machine
		if !b.Known() || b.Skew() != 0 || time.Until(b.Now()) != time.Hour {
			t.Errorf("a zero time: known %t, skew %s, now %s off; want the machine's clock", b.Known(), b.Skew(), time.Until(b.Now()))
		}
	})
}

func TestLearnsTheStoresTime(t *testing.T) {
	for _, ahead := range []time.Duration{-3 * time.Hour, 0, 3 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.ahead = ahead
				began := b.Moment()
				time.Sleep(10 * time.Millisecond)
				stored := b.store()
				time.Sleep(30 * time.Millisecond) // the answer's way
				b.Learn(stored, began)
				if off := b.off(); off.Abs() > 20*time.Millisecond {
					t.Errorf("off by %s, half the call at most", off)
				}
				if skew := b.Skew(); (skew - ahead.Abs()).Abs() > 20*time.Millisecond {
					t.Errorf("skew is %s, want about %s", skew, ahead.Abs())
				}
			})
		})
	}
}

// A clock that is never early shows no earlier time than the store's, whenever in a call the store looked at
// its own. The next call corrects most of the error of a slow one.
func TestNeverEarly(t *testing.T) {
	for _, way := range []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond, 40 * time.Millisecond} {
		t.Run(way.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.NeverEarly, b.ahead = true, time.Minute
				for _, took := range []time.Duration{40 * time.Millisecond, 4 * time.Millisecond, 20 * time.Second} {
					there := took * way / (40 * time.Millisecond)
					began := b.Moment()
					time.Sleep(there)
					stored := b.store()
					time.Sleep(took - there)
					b.Learn(stored, began)
					if off, most := b.off(), min(took, 40*time.Millisecond); off < 0 || off > most {
						t.Errorf("after a call of %s the clock is %s ahead of the store's, want 0 to %s", took, off, most)
					}
				}
			})
		})
	}
}

// A slow call proves little, and moves the clock only into the proven range.
func TestASlowCallProvesLittle(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.ahead = time.Minute
		b.Learn(b.store(), b.Moment())
		stored, began := b.store(), b.Moment()
		time.Sleep(10 * time.Second) // anywhere in this call the store may have looked at its clock
		b.Learn(stored, began)
		if off := b.off(); off != 0 {
			t.Errorf("a slow call that contradicts nothing moved the clock by %s", off)
		}
		b.ahead += time.Hour // the store's clock was set
		began = b.Moment()
		time.Sleep(10 * time.Second)
		b.Learn(b.store(), began)
		if off := b.off(); off != 0 {
			t.Errorf("off by %s after a call that proves the clock wrong by an hour", off)
		}
	})
}

// The clock agrees with the store's after each of these events.
func TestFollowsTheStore(t *testing.T) {
	for name, happens := range map[string]func(b *bench){
		"the machine is set back": func(b *bench) {
			time.Sleep(time.Second)
			b.set = -time.Hour
		},
		// The monotonic clock does not run while a machine is suspended, but the wall clock does.
		"the machine was suspended": func(b *bench) { b.set, b.ahead = time.Hour, time.Hour },
		// An answer arrives, but is read only after a suspension: the store's clock has advanced meanwhile.
		"an answer is read after a suspension": func(b *bench) {
			began, stored := b.Moment(), b.store()
			b.set, b.ahead = 195*time.Hour, 195*time.Hour
			b.Learn(stored, began)
		},
		// The store's clock is set forward, and the answer to a call from before is read last.
		"an old answer comes after a new one": func(b *bench) {
			old, stored := b.Moment(), b.store()
			time.Sleep(time.Second)
			b.ahead = time.Minute
			b.Learn(b.store(), b.Moment())
			b.Learn(stored, old)
		},
		// Two calls overlap, and the store gives the later time to the first of them.
		"an answer of a later time": func(b *bench) {
			first := b.Moment()
			time.Sleep(time.Second)
			b.Learn(b.store(), b.Moment())
			b.ahead = time.Minute
			b.Learn(b.store(), first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.Learn(b.store(), b.Moment())
				happens(b)
				if off := b.off(); off != 0 {
					t.Errorf("off by %s", off)
				}
			})
		})
	}
}

// A first answer teaches nothing if the machine was suspended while the call was under way.
func TestAFirstAnswerReadAfterASuspension(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began, stored := b.Moment(), b.store()
		b.set, b.ahead = 195*time.Hour, 195*time.Hour
		b.Learn(stored, began)
		if off := b.off(); off != 0 || b.Known() {
			t.Errorf("off by %s, known: %t", off, b.Known())
		}
		b.Learn(b.store(), b.Moment())
		if off := b.off(); off != 0 || !b.Known() {
			t.Errorf("after the second answer: off by %s, known: %t", off, b.Known())
		}
	})
}

// After a suspension that only wall clocks saw, the wall clock is set back before the next answer
// of the store.
func TestTheClockNeverGoesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.Learn(b.store(), b.Moment())
		b.set, b.ahead = 195*time.Hour, 195*time.Hour
		if off := b.off(); off != 0 {
			t.Errorf("off by %s after the suspension", off)
		}
		b.set -= 7 * time.Hour
		time.Sleep(time.Second)
		if off := b.off(); off != 0 {
			t.Errorf("off by %s after the clock was set back as well", off)
		}
		b.set = 0
		b.ahead = 0
		b.Learn(b.store(), b.Moment())
		if off := b.off(); off != 0 {
			t.Errorf("off by %s after a lesson", off)
		}
	})
}

func TestTheNextLessonPutsItRight(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.Learn(b.store(), b.Moment())
		for _, set := range []time.Duration{-time.Hour, time.Hour, 0} {
			b.set = set
			b.Learn(b.store(), b.Moment())
			if off := b.off(); off != 0 {
				t.Errorf("the machine %s off: the clock is off by %s", set, off)
			}
			if skew := b.Skew(); skew != set.Abs() {
				t.Errorf("the machine %s off: skew is %s", set, skew)
			}
		}
	})
}
