package sim

import (
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

// forget lets the store drop the markers that have expired: at once, the worst case.
func (db *database) forget() {
	db.watch.forgetting()
	db.fake.Forget()
}

// readable is the letters that can be read.
func (db *database) readable() []store.DeadLetter {
	return slices.DeleteFunc(db.fake.DeadLetters(), func(d store.DeadLetter) bool {
		_, asked := store.ReplayOf(d.Key)
		_, err := decode(d.Payload)
		return asked || err != nil
	})
}

// deadLettersWait reports whether there are letters that an aggregator can read and is asked to count.
func (db *database) deadLettersWait() bool {
	return slices.ContainsFunc(db.fake.DeadLetters(), func(d store.DeadLetter) bool {
		_, asked := store.ReplayOf(d.Key)
		_, err := decode(d.Payload)
		return err == nil && asked
	})
}

// putAhead has the store's clock have been ahead, by far, at the last reset of a counter.
func (db *database) putAhead(counter string) {
	if by := 5 * 365 * 24 * time.Hour; db.fake.Ahead(counter, by) {
		db.say(nil, "the last reset of %s was by a clock that was %s ahead", counter, by)
	}
}

// reset applies a reset. It checks that the reset removes the total of its moment.
func (db *database) reset(p *proc, r store.ResetRequest, by int) (store.ResetResult, error) {
	_, repeated := db.fake.Marker(r.ID)
	done, err := db.fake.ResetCounter(background, r)
	db.say(p, "   reset %s reaches the store: removes %d, %v", short(r.ID), done.Removed, err)
	if err != nil || repeated {
		return done, err
	}
	db.Resets++
	if was := db.fake.TotalAt(r.Counter, done.At); was != int64(r.Look.Sum.Lo) {
		db.violate("a reset of %s as of %s takes %d for its sum, when it was %d", r.Counter, done.At.Format(clockFormat), r.Look.Sum, was)
	}
	db.watch.reset(&r, &done, by)
	return done, nil
}

// sweep removes deleted counters, as an aggregator does every hour.
func (db *database) sweep() bool {
	had := db.recorded()
	n, _ := db.fake.SweepCounters(background, store.SweepAfter)
	_ = db.fake.SweepSeries(background)
	db.noteSweep(had)
	db.trace("sweep", nil, "", uint64(n))
	db.say(nil, "%d deleted counters are swept", n)
	db.Swept += n
	return n > 0
}

// growAny gives a counter more shards.
func (db *database) growAny() bool {
	_ = db.fake.Grow(background, []store.Growth{{Counter: pick(db.rng, counters), Shards: 1 + db.rng.IntN(8)}})
	return true
}
