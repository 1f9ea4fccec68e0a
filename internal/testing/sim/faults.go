package sim

// A Fault is something that the world does to the pipeline.
type Fault int

// The faults. The first group happens to calls, the second by itself.
const (
	PublishLost Fault = iota
	PublishAnswerLost
	PublishTwice
	SubscribeFails
	AckLost
	LateCopy

	FoldApplied
	FoldNotApplied
	FoldNotBegun
	FoldLate
	FoldContended
	FoldResent
	FoldSlow
	FoldExists
	FoldDeployment
	FoldIgnored
	LookupFails
	LookupBlank
	GrowthLost
	GrowthAnswerLost
	GrowthLate
	DeadLetterLost
	DeadLetterAnswerLost
	DeadLettersFail
	DiscardLost
	DiscardAnswerLost
	DiscardLate
	HeartbeatLost
	CheckFails
	CheckHangs
	ReadFails
	ResetLost
	ResetAnswerLost
	ResetLate
	CacheFails
	CacheForgets
	CacheStale
	CacheSwapped
	CacheLate

	Redelivered
	AckForgotten
	StreamEnds
	StoreAway
	BusAway
	Swapped
	KillPublisher
	KillAggregator
	KillReader
	Image
	Freeze
	PastWindow
	Suspended
	AnswerWaits
	WindowLonger
	WindowShorter
	ClockSkewed
	ClockJumps
	StoreClockSkewed
	StoreClockJumps
	ShardsGrown
	DayPasses
	Swept
	Drain
	DrainPublisher
	OtherPublisher
	CallerGivesUp
	IDReused
	Garbage
	NewerVersion
	TwoVersions
	Foreign
	Poison

	// These are drawn apart (mail, drawCrowd, ages, drawIndexes, drawPages).
	GivenUp
	ReplayAsked
	AskedAsNew
	DeadLetterDiscarded
	UnreadableAsked
	Flood
	Swarm
	PastEvent
	NearWindow
	SuspendedOld
	RequestLost
	AnswerLost
	RequestTwice
	IDsTaken
	IndexFails
	IndexLost
	IndexAnswerLost
	IndexLate
	KillIndexer
	IndexerStopped
	IndexChanged
	RulesSettled
	SequenceLost
	SequenceAnswerLost
	SequenceLate
	JournalRuled
	Conflicts
	RulesLost
	RulesAnswerLost
	RulesLate
	SweepLost
	SweepAnswerLost
	SweepLate

	faultCount
)

var faultNames = [faultCount]string{
	"publish lost", "publish answer lost", "published twice", "subscribe fails", "ack lost", "copy beside a younger message",
	"fold applied, answer lost", "fold not applied, error", "fold given up before it began", "fold applied later, error",
	"fold contends with others", "fold sent twice below", "fold slower than its deadline", "marker exists, none found",
	"deployment refuses", "store does not add", "look-up fails", "look-up finds nothing",
	"growth lost", "growth answer lost", "growth applied later", "burial lost", "burial answer lost",
	"reading letters fails", "letter's removal lost", "letter's removal answer lost", "letter removed later",
	"announcement lost", "check fails", "check hangs", "read fails", "reset lost", "reset answer lost", "reset applied later", "cache fails", "cache forgets", "cache entry stale",
	"cache entries swapped", "cache set late",
	"redelivered", "delivered again after its ack", "stream ends", "store away", "bus away", "database swapped", "publisher killed",
	"aggregator killed", "reader killed", "restored image", "frozen", "past the window", "suspended for minutes",
	"answer read after a suspension", "window longer", "window shorter", "clock off",
	"clock jumps", "store clock off", "store clock jumps", "shards raised", "a day passes",
	"deleted counters swept", "aggregator drained", "publisher drained",
	"repeated through another publisher", "caller gives up", "id reused", "garbage", "newer wire version",
	"process of another wire version",
	"foreign message", "refused content",
	"message given up by the bus", "replay asked for", "replay as new asked for", "letter discarded",
	"replay asked for of what nobody can read",
	"counter driven beyond int64", "a million increments in a batch", "event of the past",
	"just within the window", "suspended with old and young in a commit",
	"batch over HTTP lost", "answer over HTTP lost", "batch over HTTP sent twice", "ids of a batch over HTTP taken",
	"reading for an index fails", "change for an index lost", "answer of a change for an index lost", "change for an index applied later",
	"index worker killed", "index worker stopped past its lease", "index created or deleted", "rules settle",
	"change of a sequence lost", "answer of a change of a sequence lost", "change of a sequence applied later", "rule for the journal changed",
	"transaction meets another", "change of the settings lost", "answer of a change of the settings lost", "change of the settings applied later",
	"step of a sweep or a move lost", "answer of such a step lost", "such a step applied later",
}

func (f Fault) String() string { return faultNames[f] }

// firstEvent is the first fault that happens by itself; the others happen to calls.
const firstEvent = Redelivered
