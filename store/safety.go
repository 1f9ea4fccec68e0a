package store

import "time"

// Every duration that a proof rests on, side by side. The relations below them are
// asserted when this file is compiled.
const (
	// CheckEvery is the interval at which a process reads the meta record.
	CheckEvery = 10 * time.Second

	// SettingsMaxAge is how old the last good read of the settings may be when a commit
	// with markers begins. It is measured by the process's age, which a suspended machine
	// and a clock that is set back cannot stop.
	SettingsMaxAge = time.Minute

	// MarkerSlack is how long a marker stays after Settings.ForgetBefore has passed the
	// time of its part. It covers a process that is frozen between its last look at the
	// settings and its commit.
	MarkerSlack = 2 * time.Hour

	// ForgetPace is how much faster than the process runs ForgetBefore may move, where the
	// store's clock is the machine's: at most one hour for each minute. A clock that shows
	// 2040 for a moment then costs an hour of the window.
	ForgetPace = 60

	// maxRan is the most that counts as running between two moves of ForgetBefore.
	maxRan = 2 * CheckEvery

	// MaxAhead is how far the time of a part with a marker may lie in the future when it is
	// taken in. A publisher's clock may be ahead, and not every bus adds a time of its own.
	MaxAhead = 24 * time.Hour

	// ChangeSlack is how far the time of a part may lie past a change of the window while its
	// marker still expires by the window before.
	ChangeSlack = 26 * time.Hour

	// RememberFor is how long an aggregator relies on a counter's record that it has read.
	RememberFor = time.Hour

	// SweepEvery is the interval at which a process removes expired data.
	SweepEvery = time.Hour

	// SweepAfter is how long the record and the shards of a deleted counter stay.
	SweepAfter = 24 * time.Hour

	// MaxTransaction is how long a transaction of a store can live, and how late a commit can be
	// applied.
	MaxTransaction = 270 * time.Second

	// OldSettings is how long after the moment of a change of the settings a commit can begin that is
	// made with the settings before. The moment is when the change's transaction read, and until it
	// commits, every process reads the settings before.
	OldSettings = MaxTransaction + SettingsMaxAge

	// RulesSettle is how long after a change of rules a commit can still be applied that was made with
	// the rules before, where the store cannot refuse it.
	RulesSettle = OldSettings + MaxTransaction

	// JournalSettle is how long after the moment in a record's key its commit can still be applied, where
	// the store cannot refuse it. The moment comes after the settings were read.
	JournalSettle = SettingsMaxAge + MaxTransaction

	// MinWindow and MaxWindow bound Settings.Window.
	MinWindow = time.Hour
	MaxWindow = 366 * 24 * time.Hour

	// SeriesAhead is how far the time of an increment may lie ahead of the store's when it counts
	// in its own minute of a series. A later one counts in the minute of its fold.
	SeriesAhead = time.Minute

	// SeriesSlack is how much longer than promised a store keeps each sum of a series, so that a
	// reader whose clock is a little behind still finds it.
	SeriesSlack = time.Hour

	// SeriesRing and SeriesBuckets are Ring.Window and Ring.Buckets of a store with a ring. Neither
	// is needed for correctness. A shard with more buckets folds more slowly, and a later bus outage
	// than the window costs an entity of the archive in each fold.
	SeriesRing    = 24 * time.Hour
	SeriesBuckets = 64

	// SeriesMinutes is Ring.Minutes. Datastore takes 500 transforms of an entity in a commit.
	SeriesMinutes = 100

	// MoveEvery is the interval at which a process empties shards with too many buckets.
	MoveEvery = 10 * time.Second

	// MaxLook is how old a look-up may be when a reset is applied, by the store's clock.
	MaxLook = time.Minute

	// frozen is how long a process may be frozen between its last check and its commit without
	// harm. The slacks must leave more than that.
	frozen = 30 * time.Minute
)

// A negative constant does not fit uint64: each line fails to compile if its relation does
// not hold.
const (
	// Several reads of the settings are missed before commits stop.
	_ = uint64(SettingsMaxAge - 3*CheckEvery)

	// ForgetBefore may have moved for SettingsMaxAge since the last read, and by one more
	// move after a freeze. A part that passes a look at those settings, and is committed by
	// a process that was frozen after it, still finds its marker.
	_ = uint64(MarkerSlack - ForgetPace*(SettingsMaxAge+maxRan) - frozen - MaxTransaction)

	// A marker by the window before a change is written at most OldSettings after it,
	// by a process that may be frozen, for a part at most MaxAhead ahead of the clock.
	_ = uint64(ChangeSlack - OldSettings - MaxAhead - frozen)

	// An aggregator begins to fold into a counter that was deleted at most RememberFor after
	// the delete's commit; a sweep comes SweepAfter after the moment that the delete says,
	// which is at most MaxTransaction before its commit.
	_ = uint64(SweepAfter - MaxTransaction - RememberFor - frozen - MaxTransaction)

	// An increment that was folded by a rule that ended is in its series for as long as the rule
	// promised.
	_ = uint64(SeriesSlack - OldSettings - SeriesAhead - frozen)

	// A store that counts rounds of sweeps instead of hours needs a round to last as long
	// as records are remembered.
	_ = uint64(SweepEvery - RememberFor)
)
