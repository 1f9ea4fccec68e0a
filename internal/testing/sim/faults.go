package sim

// A Fault is something that the world does to the pipeline.
type Fault int

// never stands in a table where no fault belongs.
const never Fault = -1

// mostFaults is at least the number of faults.
const mostFaults = 128

var faultNames []string

func fault(name string) Fault {
	faultNames = append(faultNames, name)
	return Fault(len(faultNames) - 1)
}

func (f Fault) String() string { return faultNames[f] }

// callFaults happen to calls of one kind.
type callFaults struct{ lost, answerLost, late Fault }

func losses(change string) callFaults {
	return callFaults{fault(change + " lost"), fault("answer of a " + change + " lost"), fault(change + " applied later")}
}

func (x callFaults) all() []Fault { return []Fault{x.lost, x.answerLost, x.late} }

// set sets the rate of faults.
func (pl *plan) set(rate float64, faults ...Fault) {
	for _, f := range faults {
		pl.rates[f] = rate
	}
}

// The first faults happen to calls.
var (
	PublishLost       = fault("publish lost")
	PublishAnswerLost = fault("publish answer lost")
	PublishTwice      = fault("published twice")
	SubscribeFails    = fault("subscribe fails")
	AckLost           = fault("ack lost")
	LateCopy          = fault("copy beside a younger message")
	FoldApplied       = fault("fold applied, answer lost")
	FoldNotApplied    = fault("fold not applied, error")
	FoldNotBegun      = fault("fold given up before it began")
	FoldLate          = fault("fold applied later, error")
	FoldContended     = fault("fold contends with others")
	FoldResent        = fault("fold sent twice below")
	FoldSlow          = fault("fold slower than its deadline")
	FoldExists        = fault("marker exists, none found")
	FoldDeployment    = fault("deployment refuses")
	FoldIgnored       = fault("store does not add")
	LookupFails       = fault("look-up fails")
	LookupBlank       = fault("look-up finds nothing")
	growths           = losses("growth")
	burials           = callFaults{fault("burial lost"), fault("burial answer lost"), never}
	DeadLettersFail   = fault("reading letters fails")
	discards          = losses("removal of a letter")
	HeartbeatLost     = fault("announcement lost")
	CheckFails        = fault("check fails")
	CheckHangs        = fault("check hangs")
	ReadFails         = fault("read fails")
	resets            = losses("reset")
	CacheFails        = fault("cache fails")
	CacheForgets      = fault("cache forgets")
	CacheStale        = fault("cache entry stale")
	CacheSwapped      = fault("cache entries swapped")
	CacheLate         = fault("cache set late")

	// These happen by themselves.

	Redelivered      = fault("redelivered")
	AckForgotten     = fault("delivered again after its ack")
	StreamEnds       = fault("stream ends")
	StoreAway        = fault("store away")
	BusAway          = fault("bus away")
	Swapped          = fault("database swapped")
	KillPublisher    = fault("publisher killed")
	KillAggregator   = fault("aggregator killed")
	KillReader       = fault("reader killed")
	Image            = fault("restored image")
	Freeze           = fault("frozen")
	PastWindow       = fault("past the window")
	Suspended        = fault("suspended for minutes")
	AnswerWaits      = fault("answer read after a suspension")
	WindowLonger     = fault("window longer")
	WindowShorter    = fault("window shorter")
	ClockSkewed      = fault("clock off")
	ClockJumps       = fault("clock jumps")
	StoreClockSkewed = fault("store clock off")
	StoreClockJumps  = fault("store clock jumps")
	ShardsGrown      = fault("shards raised")
	DayPasses        = fault("a day passes")
	Swept            = fault("deleted counters swept")
	Drain            = fault("aggregator drained")
	DrainPublisher   = fault("publisher drained")
	OtherPublisher   = fault("repeated through another publisher")
	CallerGivesUp    = fault("caller gives up")
	IDReused         = fault("id reused")
	Garbage          = fault("garbage")
	NewerVersion     = fault("newer wire version")
	TwoVersions      = fault("process of another wire version")
	Foreign          = fault("foreign message")
	Poison           = fault("refused content")

	// These are drawn apart (drawDeadLetters, drawCrowd, drawAges, drawRemotes, drawIndexes, drawSequences, drawPages, drawEngine).

	GivenUp             = fault("message given up by the bus")
	ReplayAsked         = fault("replay asked for")
	AskedAsNew          = fault("replay as new asked for")
	DeadLetterDiscarded = fault("letter discarded")
	UnreadableAsked     = fault("replay asked for of what nobody can read")
	Flood               = fault("counter driven beyond int64")
	Swarm               = fault("a million increments in a batch")
	PastEvent           = fault("event of the past")
	NearWindow          = fault("just within the window")
	SuspendedOld        = fault("suspended with old and young in a commit")
	RequestLost         = fault("batch over HTTP lost")
	AnswerLost          = fault("answer over HTTP lost")
	RequestTwice        = fault("batch over HTTP sent twice")
	IDsTaken            = fault("ids of a batch over HTTP taken")
	IndexFails          = fault("reading for an index fails")
	indexChanges        = losses("change for an index")
	KillIndexer         = fault("index worker killed")
	IndexerStopped      = fault("index worker stopped past its lease")
	IndexChanged        = fault("index created or deleted")
	RulesSettled        = fault("rules settle")
	takes               = losses("change of a sequence")
	JournalRuled        = fault("rule for the journal changed")
	Conflicts           = fault("transaction meets another")
	settingsChanges     = losses("change of the settings")
	sweeps              = losses("step of a sweep or a move")
)
