package protocol

import (
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// Facts decide the forms of protocols, beside the engine's Limits.Spread (places are hashes), Exclusive (it has moments, knows all changes, and
// counts rounds of sweeps), Expires, Conditions and ByName.
type facts struct {
	// machineClock: the database has no clock, so its one process uses the machine's. ForgetBefore then moves by the process's
	// age (Settings.Advance), and markers go by ForgetBefore and their At. Otherwise ForgetBefore moves by the database's clock, and
	// markers go by that clock and their ExpireAt: a shorter window moves ForgetBefore at once, and others fold by the settings before.
	machineClock bool
	// certain: one process has the database, and no call takes effect after it has returned. So Changes is right, and a gate keeps
	// folds by older rules out of a change of rules.
	certain bool
	// settle is how long after the moment of a change of rules a fold by older rules may take effect. Where others fold, also a
	// change that refuses them takes effect some time after its moment, and until then others read the rules before.
	settle time.Duration
	// growsInFold: a growth in a fold costs less than to ask for the record.
	growsInFold bool
	// ring: young minutes are in the shard, because a row more in each fold costs money. Moves need the answer of a fold
	// to find crowded shards.
	ring bool
	// daysFirst: the rows of a day are neighbours, so a fold writes one range, and a sweep goes from day to day. Otherwise the days of
	// a counter are neighbours, and a sweep goes by their Due: where places are hashes, or reads cost money.
	daysFirst bool
	// stats: a shard sustains few commits, and counts its folds at no cost.
	stats bool
	// remainders is store.Limits.Remainders: the transaction reads a row and writes two for each.
	remainders int
}

func factsOf(l *engine.Limits) facts {
	f := facts{
		machineClock: !l.Clock,
		certain:      l.Exclusive && l.CertainOutcome,
		growsInFold:  l.FreeUpserts && l.Rows == 0,
		ring:         l.RowsCost && l.Returns,
		daysFirst:    !l.Spread && !l.RowsCost,
		stats:        l.RowRate > 0 && l.Returns && l.MaxThenAdd,
		remainders:   min(100, l.Keys-1),
	}
	if !l.Conditions || !f.certain {
		f.settle = store.RulesSettle
	}
	if l.Rows > 0 {
		f.remainders = min(f.remainders, l.Rows/2)
	}
	return f
}

// Limits are those of the engine in the words of a store.
func (s *Store) Limits() store.Limits {
	l := store.Limits{
		Entities: s.limits.Rows, Keys: s.limits.Keys, Commits: s.limits.Commits, Shards: s.cfg.Shards, CertainOutcome: s.limits.CertainOutcome,
		GrowsInFold: s.facts.growsInFold, RefusesOldRules: s.limits.Conditions, Remainders: s.facts.remainders,
	}
	if s.facts.stats {
		l.ShardRate = s.limits.RowRate
	}
	if s.facts.ring {
		l.Ring = s.cfg.Ring
	}
	return l
}
