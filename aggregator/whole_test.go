package aggregator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// markers counts the markers, and the markers with the flag Whole.
func (r *rig) markers(parts ...wire.Part) (all, whole int) {
	for _, p := range parts {
		if m, ok := r.store.Marker(p.ID); ok {
			if all++; m.Whole {
				whole++
			}
		}
	}
	return all, whole
}

func (r *rig) wantMarkers(t *testing.T, all, whole int, parts ...wire.Part) {
	t.Helper()
	if a, w := r.markers(parts...); a != all || w != whole {
		t.Errorf("%d markers, %d of them whole, want %d and %d", a, w, all, whole)
	}
}

// ofRequest are the totals after a request of that many counters and ids.
func ofRequest(counters, delta int, ids ...string) map[string]int64 {
	want := make(map[string]int64)
	for i := range counters {
		want[fmt.Sprint("c", i)] = int64(delta)
	}
	if len(ids) > 0 {
		want["ids"] = int64(delta * len(ids))
	}
	return want
}

func wantAcked(t *testing.T, messages ...*message.Message) {
	t.Helper()
	for i, m := range messages {
		if !acked(m) {
			t.Errorf("message %d is not acknowledged", i)
		}
	}
}

func TestAWholeRequestHasOneMarker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		parts := keyed(t, "k", 100, 7, "x", "y") // head, four rests, two increments with ids
		m := r.send(t, parts...)
		settle(time.Minute)
		wantAcked(t, m)
		r.want(t, ofRequest(100, 7, "x", "y"))
		r.wantMarkers(t, 3, 1, parts...)
		// No repeat of the request is counted again, in any form.
		again := []*message.Message{
			r.send(t, parts...), r.send(t, parts[0]), r.send(t, parts[0], parts[3], parts[5]), r.send(t, parts[0], parts[4], parts[2], parts[2]),
		}
		settle(time.Minute)
		again = append(again, r.send(t, parts[0], parts[1]), r.send(t, parts...))
		settle(time.Minute)
		again = append(again, r.send(t, parts[0]))
		settle(time.Minute)
		wantAcked(t, again...)
		r.want(t, ofRequest(100, 7, "x", "y"))
		r.wantMarkers(t, 3, 1, parts...)
	})
}

// A request in two messages, or one of which a part was applied before, has a marker for each part.
func TestAPartOfARequestIsNotWhole(t *testing.T) {
	for name, first := range map[string][]int{"the head": {0}, "a rest": {0, 3}, "all but one": {0, 1, 2, 4, 5}, "with a copy": {0, 1, 1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{})
				parts := keyed(t, "k", 100, 7, "x")
				var some []wire.Part
				for _, n := range first {
					some = append(some, parts[n])
				}
				m := r.send(t, some...)
				settle(time.Minute)
				whole := r.send(t, parts...)
				settle(time.Minute)
				wantAcked(t, m, whole)
				r.want(t, ofRequest(100, 7, "x"))
				r.wantMarkers(t, len(parts), 0, parts...)
			})
		})
	}
}

// Two copies are in process at once, one with all parts and one with some, in either order.
func TestWholeAndPartialCopiesAtOnce(t *testing.T) {
	for name, wholeFirst := range map[string]bool{"whole first": true, "partial first": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{})
				parts := keyed(t, "k", 100, 7, "x")
				copies := [][]wire.Part{parts, {parts[0], parts[2], parts[5]}}
				markers, whole := 2, 1
				if !wholeFirst {
					copies[0], copies[1] = copies[1], copies[0]
					markers, whole = len(parts), 0
				}
				wantAll := []*message.Message{r.send(t, copies[0]...), r.send(t, copies[1]...), r.send(t, copies[0]...)}
				settle(time.Minute)
				wantAcked(t, wantAll...)
				r.want(t, ofRequest(100, 7, "x"))
				r.wantMarkers(t, markers, whole, parts...)
			})
		})
	}
}

func TestARequestThatDoesNotFitACommitIsTakenApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := small(t)
		st.OnFold(func(_ int, c *store.Commit) fakestore.Answer {
			if n := c.Entities(); n > 25 {
				t.Errorf("a commit of %d entities was tried", n)
			}
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{})
		parts := keyed(t, "k", 100, 7, "x")
		m := r.send(t, parts...)
		settle(time.Minute)
		wantAcked(t, m)
		r.want(t, ofRequest(100, 7, "x"))
		r.wantMarkers(t, len(parts), 0, parts...)
	})
}

// Only the part that the store refuses is set aside, as in a request of several messages.
func TestAWholeRequestWithARefusedPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		parts := keyed(t, "k", 100, 7, "x")
		poison := parts[2].Entries[5].Counter
		st.OnFold(func(_ int, c *store.Commit) fakestore.Answer {
			for _, a := range c.Adds {
				if a.Counter == poison {
					return fakestore.Refused
				}
			}
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{})
		m := r.send(t, parts...)
		settle(time.Minute)
		wantAcked(t, m)
		want := ofRequest(100, 7, "x")
		for _, e := range parts[2].Entries {
			delete(want, e.Counter)
		}
		r.want(t, want)
		if n := len(r.store.Letters()); n != 1 {
			t.Errorf("%d dead letters, want one about the part: %v", n, r.reasons())
		}
	})
}

// The key was used for another request: nothing is counted, although the first one's marker says "whole".
func TestAWholeRequestUnderAUsedKey(t *testing.T) {
	for name, between := range map[string]time.Duration{"together": 0, "later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{})
				first, second := keyed(t, "k", 100, 7), keyed(t, "k", 90, 8, "x")
				r.send(t, first...)
				settle(between)
				m := r.send(t, second...)
				partial := r.send(t, second[0], second[2])
				settle(time.Minute)
				wantAcked(t, m, partial)
				r.want(t, ofRequest(100, 7))
				held := map[wire.PartID]bool{}
				for _, d := range r.store.Letters() {
					b, err := wire.Decode(d.Payload)
					if err != nil {
						t.Fatal(err)
					}
					for _, p := range b.Parts {
						held[p.ID] = true
					}
				}
				if len(held) != len(second) {
					t.Errorf("dead letters hold %d of %d parts", len(held), len(second))
				}
			})
		})
	}
}

// The commit was applied and its answer lost: the found marker is the aggregator's own.
func TestAWholeRequestWithALostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(fakestore.FoldScript(fakestore.UnknownApplied, fakestore.UnknownNotApplied))
		r := run(t, st, aggregator.Config{})
		parts := keyed(t, "k", 100, 7, "x")
		m := r.send(t, parts...)
		settle(time.Minute)
		wantAcked(t, m)
		r.want(t, ofRequest(100, 7, "x"))
		r.wantMarkers(t, 2, 1, parts...)
		if s := r.agg.Stats(); s.Entries != 101 {
			t.Errorf("%d entries folded, want 101", s.Entries)
		}
	})
}
