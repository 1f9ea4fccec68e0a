package e2e

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/datastore"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

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
