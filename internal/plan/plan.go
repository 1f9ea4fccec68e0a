package plan

import (
	"math"

	"github.com/countmill/countmill/internal/shards"
	"github.com/countmill/countmill/store"
)

// A Plan is the cost of a load.
type Plan struct {
	Load        Load
	Aggregators int
	Countmill   Cost
	Classic     Cost
	// Notes are the limits that bind, most important first.
	Notes []string
}

// A Cost is the cost of a steady state: all counters exist, and nothing is repeated.
type Cost struct {
	Messages    float64 `json:"messages_per_second"`
	Parts       float64 `json:"parts_per_second"`
	PubSubBytes float64 `json:"pubsub_bytes_per_second"` // as billed, published and delivered
	Commits     float64 `json:"commits_per_second"`

	ShardsWritten   float64 `json:"shards_written_per_second"`
	MarkersWritten  float64 `json:"markers_written_per_second"`
	WorkersWritten  float64 `json:"workers_written_per_second"`
	SeriesWritten   float64 `json:"series_written_per_second"`   // beside the shards of folds
	GroupsWritten   float64 `json:"groups_written_per_second"`   // shards of groups
	EntitiesWritten float64 `json:"entities_written_per_second"` // the sum of these five
	PerMillion      float64 `json:"entities_written_per_million"`

	RecordsRead     float64 `json:"records_read_per_second"`  // read by aggregators
	TotalsRead      float64 `json:"entities_read_for_totals"` // a second
	WatchedRead     float64 `json:"entities_read_for_watchers"`
	BoardsRead      float64 `json:"entities_read_for_leaderboards"`
	IndexRead       float64 `json:"entities_read_for_indexes"` // by workers, after the build
	EntitiesRead    float64 `json:"entities_read_per_second"`  // the sum of these five, and of periodic reads
	EntitiesDeleted float64 `json:"entities_deleted_per_second"`

	BoardScan        float64 `json:"entities_of_a_leaderboard_scan"`
	BoardScanDollars float64 `json:"dollars_of_a_leaderboard_scan"`
	IndexBuild       Build   `json:"index_build"`

	Shards     float64 `json:"shards"`         // number of shards of all counters and groups
	MostShards float64 `json:"shards_hottest"` // shards of the counter or group with the most
	Records    float64 `json:"records"`        // each is written once
	Markers    float64 `json:"markers_stored"`

	StoredBytes float64 `json:"stored_bytes"`
	Month       Bill    `json:"dollars_a_month"`
}

// A Build is the one-off work for a new index.
type Build struct {
	Shards     float64 `json:"shards"`     // that are read
	Remainders float64 `json:"remainders"` // that are set
	Read       float64 `json:"entities_read"`
	Written    float64 `json:"entities_written"`
	Dollars    float64 `json:"dollars"`
}

// Make computes the plan of a load. The error has every field that is out of range.
func Make(l Load) (Plan, error) {
	if err := l.Check(); err != nil {
		return Plan{}, err
	}
	if l.Asked == 0 {
		l.Asked = l.Counters
	}
	of := classes(l.Counters, l.Zipf)
	b := l.send(of)
	p := Plan{Load: l, Aggregators: l.Aggregators}
	if p.Aggregators == 0 {
		p.Aggregators = l.enough(of, b)
	}
	w := l.fold(of, b, p.Aggregators)
	p.Countmill = l.countmill(of, b, w, float64(p.Aggregators))
	p.Classic = l.classic(of)
	p.notes(of, b, w)
	return p, nil
}

// countmill is the cost with that many aggregators.
func (l Load) countmill(of []class, b batch, w window, aggregators float64) Cost {
	batches, windows := float64(l.Publishers)/b.every, aggregators/w.every
	c := Cost{
		Messages: batches * b.messages, Parts: batches * b.parts,
		PubSubBytes: pubSubBytes(batches*b.messages, batches*b.bytes),
		Commits:     windows * w.commits, ShardsWritten: windows * w.shards, MarkersWritten: windows * w.markers,
		WorkersWritten: aggregators / heartbeatEvery,
		Records:        float64(l.Counters),
	}
	// A TTL policy deletes markers up to a day after they expire.
	c.Markers = c.MarkersWritten * (l.DedupWindow + store.MarkerSlack).Seconds()

	folds, commits, shards := make([]float64, len(of)), make([]float64, len(of)), make([]float64, len(of))
	served, watched := l.served(of), l.watched(of)
	for i, class := range of {
		folds[i] = w.in[i] / w.every
		commits[i] = w.in[i] * windows
		shards[i] = l.shards(commits[i])
		c.Shards += class.counters * shards[i]
		c.MostShards = max(c.MostShards, shards[i])
		c.TotalsRead += served[i] * (shards[i] + 1)
		c.WatchedRead += watched[i] * (shards[i] + 1)
	}
	series := l.series(of, commits, shards)
	c.SeriesWritten = series.written
	c.RecordsRead = records(of, folds, aggregators)
	c.index(l, of, b, w, aggregators, shards)
	c.EntitiesWritten = c.ShardsWritten + c.MarkersWritten + c.WorkersWritten + c.SeriesWritten + c.GroupsWritten
	c.PerMillion = c.EntitiesWritten / l.Rate * 1e6
	c.BoardsRead = l.BoardRate * float64(l.Readers)
	c.BoardScan = l.boardEntities(of, shards)
	c.BoardScanDollars = l.Prices.once(c.BoardScan, 0)
	c.EntitiesDeleted = c.MarkersWritten + series.deleted
	readers := float64(l.Readers)
	if l.Totals == 0 && l.Watched == 0 && l.BoardRate == 0 {
		readers = 0
	}
	c.EntitiesRead = c.RecordsRead + c.TotalsRead + c.WatchedRead + c.BoardsRead + c.IndexRead + series.read + (aggregators+readers)/store.CheckEvery.Seconds() + readers*aggregators/lagEvery
	c.StoredBytes += c.Markers*markerBytes + c.Records*l.recordBytes() + c.Shards*l.shardBytes()
	c.Month = l.Prices.bill(c)
	return c
}

// shards is the number of shards of a counter with that many commits a second.
func (l Load) shards(commits float64) float64 {
	return float64(shards.Grown(l.StartShards, commits, l.ShardRate, l.MaxShards))
}

// classic is the cost of the sharded counter of textbooks. Each increment reads and writes one of
// a counter's shards in a transaction. The counter has as many shards as its increments need,
// with no cap and no markers. Its totals are cached, and watched, as countmill's are.
func (l Load) classic(of []class) Cost {
	c := Cost{Commits: l.Rate, ShardsWritten: l.Rate, EntitiesWritten: l.Rate, PerMillion: 1e6}
	served, watched := l.served(of), l.watched(of)
	for i, class := range of {
		each := max(math.Ceil(l.Rate*class.share/l.ShardRate-1e-9), 1)
		c.Shards += class.counters * each
		c.MostShards = max(c.MostShards, each)
		c.TotalsRead += served[i] * each
		c.WatchedRead += watched[i] * each
	}
	c.EntitiesRead = l.Rate + c.TotalsRead + c.WatchedRead
	c.StoredBytes = c.Shards * l.shardBytes()
	c.Month = l.Prices.bill(c)
	return c
}

// An aggregator is planned for half of its capacity, because loads have peaks. A stream of
// Pub/Sub carries some 10 MB/s (client library, doc.go).
const (
	busyPart    = 0.5
	streamBytes = 10e6
)

// enough is the smallest number of aggregators that keep up.
func (l Load) enough(of []class, b batch) int {
	batches := float64(l.Publishers) / b.every
	keepUp := func(n int) bool {
		each := float64(n)
		every := l.due(batches/each, n)
		w := pack(of, b, max(batches*every/each, 1), 0)
		return w.commits*l.CommitTime.Seconds()/commitsAtOnce <= busyPart*every &&
			batches*b.bytes/each <= busyPart*streamBytes &&
			w.shards+w.markers <= windowEntities && w.messages <= windowMessages
	}
	most := 1
	for !keepUp(most) && most < maxAggregators {
		most *= 2
	}
	least := most / 2 // known to be too few
	for most-least > 1 {
		if middle := (least + most) / 2; keepUp(middle) {
			most = middle
		} else {
			least = middle
		}
	}
	return most
}

const maxAggregators = 1 << 16
