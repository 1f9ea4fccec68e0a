package sim

import (
	"context"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
)

// A neighbourKind says whether a schedule has a neighbour, and how its database came about.
type neighbourKind int

const (
	noNeighbour neighbourKind = iota
	made                      // under the name of the schedule's database, as after a new installation
	copied                    // from the schedule's database, under another name
)

// drawNeighbour draws whether there is a neighbour.
func (pl *plan) drawNeighbour() {
	rng := pl.rng
	pl.neighbour = neighbourKind(max(0, rng.IntN(10)-7))
}

// A neighbour is a reader of another database, which shares the cache.
type neighbour struct {
	*callers
	p   *proc
	rdr *reader.Reader
}

// beside is the total of each counter in the other database. In the schedule's, no increments of a counter sum to it.
const beside = 2

func newNeighbour(cl *callers) *neighbour {
	db, ps := cl.db, cl.procs
	limits := db.limits
	if db.plan.neighbour == copied {
		limits.Name = "copy"
	}
	e := memory.New(protocol.Kinds, memory.Options{Limits: limits, Clock: cl.storeNow}).Open()
	if db.plan.neighbour == copied {
		key := engine.Key{Kind: kindMeta, Name: "meta"}
		meta := rowIn(db.engine, key)
		must(e.Commit(background, &engine.Commit{Changes: engine.Changes(engine.Change{Key: key, Set: meta.Fields, Data: meta.Data})}))
	}
	s := db.openWith(e, 1, 0)
	for _, counter := range counters {
		one := &store.Commit{Growths: []store.Growth{{Counter: counter, Shards: 1}}, Adds: []store.ShardDelta{store.NewShardDelta(counter, 0, beside)}, KnownShards: []int{1}, Rules: store.AnyRules}
		must(s.Fold(background, one))
	}
	nb := &neighbour{callers: cl, p: &proc{k: cl.kernel, n: -1, name: "neighbour"}}
	ps.all = append(ps.all, nb.p)
	nb.rdr = must(reader.New(s, ps.cache.of(nb.p, s), clock.With(reader.Config{Guess: 1, Remember: 4, Timeout: ps.shape.timeout + 43*time.Microsecond}, cl.newEnv(nb.p, 0))))
	return nb
}

// read asks for a total of a counter that the schedule's readers ask for as well.
func (nb *neighbour) read() {
	o := nb.newOp("read beside", nb.check)
	o.names, o.staleness = []string{pick(nb.rng, counters[:2])}, 5*time.Second
	nb.ask(o, nb.p, func(ctx context.Context) (err error) {
		o.totals, err = nb.rdr.Totals(ctx, o.names, o.staleness)
		return err
	})
}

// check: the totals are those of the other database.
func (nb *neighbour) check(o *op) {
	if o.p.dead || o.err != nil {
		return
	}
	for _, t := range o.totals {
		nb.Beside++
		if t.Total != beside {
			nb.violate("the reader of another database read %d of %s from the %s, and not %d", t.Total, t.Counter, t.Source, beside)
		}
	}
}
