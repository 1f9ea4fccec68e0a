package sim

import (
	"context"
	"slices"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/sequence"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

// A role is the task of a process; a node has all tasks.
type role int

const (
	client role = iota
	publishing
	aggregating
	reading
	indexing
	node
)

func (r role) has(other role) bool { return r == other || r == node && other != client }

// A proc is one life of a process.
type proc struct {
	k    *kernel
	n    int
	name string
	role role
	slot int // which of its kind

	dead     bool // guarded by kernel.mu
	calls    int  // guarded by kernel.mu
	frozen   bool
	stirred  bool           // got an answer since checkMemory
	leaving  bool           // asked to stop
	left     bool           // and has
	fell     bool           // ended by itself
	unsure   bool           // the outcome of a fold was unknown to it
	skew     time.Duration  // written under kernel.mu
	set      time.Time      // when its clock was set last
	image    uint64         // where its random numbers begin
	told     time.Time      // when Check said that the database is another
	late     int            // folds since
	learned  bool           // it has had the store's time
	doubt    time.Duration  // how far it may be wrong about it since the store's clock was set; guarded by kernel.mu
	setBack  time.Duration  // how far its own clock was set back since the store last answered; guarded by kernel.mu
	slept    time.Duration  // how long it was suspended since the store last answered; guarded by kernel.mu
	asking   int            // checks of the database under way
	asked    time.Time      // when the last was answered
	lag      time.Duration  // that it said last; guarded by kernel.mu
	rdrClock accuracy       // guarded by kernel.mu
	aggClock accuracy       // guarded by kernel.mu
	records  []store.Worker // that it has read last; guarded by kernel.mu

	store        *protocol.Store // of its roles; nil if it only publishes
	version      int             // of the wire format: that it writes, and the newest it reads
	shards       int
	heldMessages int
	first        *busMessage // that was delivered to it
	pub          *publisher.Publisher
	pubClosed    bool
	cutShort     bool // by the time-out of Close
	agg          *aggregator.Aggregator
	stop         context.CancelFunc
	rdr          *reader.Reader
	adm          *admin.Admin     // with the reader
	jnl          *admin.Journal   // with the reader
	seq          *sequence.Issuer // with the reader; nil in most schedules
	idx          *indexer.Indexer
	stopIndexer  context.CancelFunc
	waiting      []*busMessage
	sums         []*sum // what Add took since the last Flush

	open map[any]struct{} // shards and markers of folds under way
}

// There is one wire version so far. The second version of the simulator has the same format and
// another number: only its readers differ.
const secondVersion = wire.Version + 1

// encode is a batch as a process of that version writes it.
func encode(version int, payload []byte) []byte {
	payload = slices.Clone(payload)
	if version == secondVersion {
		payload[1] = secondVersion // behind the tag
	}
	return payload
}

// decode reads both versions.
func decode(payload []byte) (*wire.Batch, error) {
	if len(payload) > 1 && payload[0] == 8 && payload[1] == secondVersion {
		payload = append([]byte{8, wire.Version}, payload[2:]...)
	}
	return wire.Decode(payload)
}

// drawVersion returns the wire version of a process that follows another one in its slot. In the end
// all aggregators read both versions; publishers need not write the second.
func (ps *processes) drawVersion(r role, before *proc) int {
	version := wire.Version
	if ps.rates[TwoVersions] > 0 {
		version += ps.rng.IntN(2)
	}
	if !ps.stormy && r == aggregating && ps.newerComes() {
		version = secondVersion
	}
	if before != nil && before.version != version {
		ps.hit(TwoVersions)
	}
	return version
}

// reads is how an aggregator of that version reads batches.
func reads(version int) func([]byte) (*wire.Batch, error) {
	if version == secondVersion {
		return decode
	}
	return nil
}

// canRead reports whether the process reads the version of a message.
func (p *proc) canRead(payload []byte) bool {
	return p.version == secondVersion || len(payload) < 2 || payload[0] != 8 || payload[1] != secondVersion
}
