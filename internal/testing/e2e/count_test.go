package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/datastore"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// An independent program that sums the shard entities finds the reader's totals.
func TestShardsSumToTotals(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	aggregators := []*process{d.aggregator(t), d.aggregator(t), d.aggregator(t)}
	publisher, reader := d.publisher(t), d.reader(t)
	l := startLoad(t, publisher, 8, 100)
	l.wait(t, 20_000)
	for i, a := range aggregators {
		until(t, time.Minute, fmt.Sprintf("aggregator %d to fold something: else this does not show several at once", i), func() bool {
			return a.metric(t, "countmill_entries_folded_total") > 0
		})
	}
	want := l.end()
	if len(want) != 100 {
		t.Fatalf("the load has %d counters, want 100", len(want))
	}
	took := reader.exact(t, time.Minute, want)
	shards, sums := sumShards(t, d)
	if len(sums) != len(want) {
		t.Errorf("the store has %d counters, want %d", len(sums), len(want))
	}
	for name, n := range want {
		if sums[name] != n {
			t.Errorf("%s: its shards sum to %d, the reader says %d", name, sums[name], n)
		}
	}
	t.Logf("%d increments of %d counters in %d shard entities, counted %s after the last was accepted",
		l.accepted(), len(want), shards, took.Round(time.Millisecond))
}

// sumShards reads CountmillShard with Google's client, without any code of countmill.
func sumShards(t *testing.T, d *deployment) (shards int, sums map[string]int64) {
	t.Helper()
	c := d.client(t)
	var entities []struct {
		Counter string `datastore:"name"`
		Count   int64  `datastore:"count"`
		Tally   int64  `datastore:"tally"`
		Shards  int64  `datastore:"shards"`
	}
	if _, err := c.GetAll(t.Context(), datastore.NewQuery("CountmillShard"), &entities); err != nil {
		t.Fatal(err)
	}
	sums = make(map[string]int64)
	for _, e := range entities {
		sums[e.Counter] += e.Count
	}
	return len(entities), sums
}

// client is Google's own client, on the deployment's Datastore.
func (d *deployment) client(t *testing.T) *datastore.Client {
	t.Helper()
	c, err := datastore.NewClient(t.Context(), d.project, option.WithEndpoint(d.datastore), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Any language can count by publishing JSON on the topic over plain HTTP.
func TestJSONOnTheTopic(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	aggregator, reader := d.aggregator(t), d.reader(t)
	put := func(text string) {
		d.rest(t, http.MethodPost, "topics/increments:publish", map[string]any{
			"messages": []map[string]string{{"data": base64.StdEncoding.EncodeToString([]byte(text))}},
		})
	}
	put(`{"counter":"a"}`)
	put(`[{"counter":"a","delta":41},{"counter":"b","delta":-2}]`)
	put(`[{"counter":"b"},{"counter":"b","delta":11}]`)
	put(`this is no JSON`)
	reader.exact(t, 30*time.Second, map[string]int64{"a": 42, "b": 10})
	until(t, 30*time.Second, "a dead letter", func() bool { return aggregator.metric(t, "countmill_dead_letters_total") > 0 })
	if n := aggregator.metric(t, "countmill_dead_letters_total"); n != 1 {
		t.Errorf("got %v dead letters, want 1", n)
	}
	if n := countEntities(t, d, "CountmillLetter"); n != 1 {
		t.Errorf("the store has %d dead letters, want 1", n)
	}
	d.noDeadLetters(t)
}

func countEntities(t *testing.T, d *deployment, kind string) int {
	t.Helper()
	c := d.client(t)
	keys, err := c.GetAll(t.Context(), datastore.NewQuery(kind).KeysOnly(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return len(keys)
}
