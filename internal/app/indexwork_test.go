package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/publisher"
)

// With roles apart two processes of their own work at indexes, and one of them ends. They have /readyz and
// /metrics, and no other role's routes.
func TestIndexWorkApart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits until roles look at the rules")
	}
	b := openApart(t)
	begin := func(role Roles) *running {
		t.Helper()
		return b.run(t, Config{
			Roles: role, Store: "datastore://elsewhere", // a store that several processes have
			Publisher: publisher.Config{Linger: -1}, Aggregator: aggregator.Config{Linger: -1},
			Indexer: indexer.Config{Rate: 20, Lease: 5 * time.Second}, // so that the worker that ends leaves shards to the other
		})
	}
	rd := begin(Reader)
	defer rd.stop(t)
	agg := begin(Aggregator)
	defer agg.stop(t)
	pub := begin(Publisher)
	defer pub.stop(t)
	for _, r := range []*running{rd, agg, pub} {
		r.waitReady(t)
	}
	for i := range 50 {
		pub.incr(t, fmt.Sprintf(`[{"counter":"page:a:%d","delta":2},{"counter":"page:b:%d"}]`, i, i))
	}
	// Several processes may get a message again: its parts have markers, which are more entities than their shards.
	if got := agg.metric(t, "countmill_entities_written_total"); got < 5*50 {
		t.Errorf("the aggregator wrote %v entities, want 250: records, markers and shards", got)
	}
	if status, text := pub.call(t, "POST", "/v1/increments?return=totals", `{"counter":"a"}`); status != 400 || !strings.Contains(text, "in one process") {
		t.Errorf("totals of a publisher alone: got %d %s, want 400 that says what it needs", status, text)
	}
	if status, text := rd.call(t, "POST", "/v1/indexes", sites); status != 200 {
		t.Fatalf("creating an index: got %d %s", status, text)
	}
	agg.poll(t, "aware of an index", func() bool { return agg.metric(t, "countmill_unfinished_indexes") == 1 })
	workers := []*running{begin(Indexer), begin(Indexer)}
	defer workers[1].stop(t)
	for _, r := range workers {
		r.waitReady(t)
	}
	workers[0].stop(t)
	pub.incr(t, `{"counter":"page:a:1","delta":5}`)
	rd.poll(t, "serving", func() bool { return rd.indexState(t, "sites") == "serving" })
	agg.poll(t, "aware that the index is built", func() bool { return agg.metric(t, "countmill_unfinished_indexes") == 0 })
	rd.wantTotal(t, "=site:a", 105)
	rd.wantTotal(t, "=site:b", 50)
	rd.wantNoProblems(t)
	if read := workers[1].metric(t, "countmill_index_shards_read_total"); read == 0 {
		t.Error("the worker that is left has read no shards")
	}
	for _, path := range []string{"/v1/totals?counter=a", "/v1/indexes", "/v1/verify", "/v1/dead-letters"} {
		if status, text := workers[1].call(t, "GET", path, ""); status != 404 || !strings.Contains(text, "this process runs the role indexer") {
			t.Errorf("GET %s of a worker: got %d %s", path, status, text)
		}
	}
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	workers[1].poke(t)
	workers[1].poll(t, "not ready without its store", func() bool { status, _ := workers[1].call(t, "GET", "/readyz", ""); return status == 503 })
}

// poke makes the workers of the process look for work.
func (r *running) poke(t *testing.T) { serviceOf[*indexing](t, r.App).Poke() }
