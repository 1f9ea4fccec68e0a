package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// A deployment is a project of its own on emulators, and the processes that share it.
type deployment struct {
	project           string
	pubsub, datastore string // HOST:PORT of the emulators
	env               []string
	cache             *emulator.MemcachedServer
}

// deploy makes a deployment on the emulators that all tests share.
func deploy(t *testing.T) *deployment {
	t.Helper()
	longtest.Only(t, "builds countmill and runs it for many seconds")
	pubsub, datastore := emulator.PubSub(t), emulator.Firestore(t)
	return newDeployment(t, pubsub, datastore, pubsub, datastore)
}

// newDeployment makes a deployment on two emulators. Its processes use other addresses for them if
// there is a proxy in between.
func newDeployment(t *testing.T, pubsub, datastore, pubsubAs, datastoreAs string) *deployment {
	t.Helper()
	d := &deployment{
		project: emulator.Project(), pubsub: pubsub, datastore: datastore, cache: emulator.Memcached(t),
		env: []string{"PUBSUB_EMULATOR_HOST=" + pubsubAs, "DATASTORE_EMULATOR_HOST=" + datastoreAs},
	}
	d.provide(t)
	return d
}

// provide makes topic and subscription with a dead-letter policy. Because of that policy Pub/Sub counts
// deliveries.
func (d *deployment) provide(t *testing.T) {
	t.Helper()
	d.rest(t, http.MethodPut, "topics/increments", map[string]any{})
	d.rest(t, http.MethodPut, "topics/dead", map[string]any{})
	d.rest(t, http.MethodPut, "subscriptions/dead", map[string]any{"topic": d.name("topics/dead")})
	d.rest(t, http.MethodPut, "subscriptions/aggregators", map[string]any{
		"topic": d.name("topics/increments"), "ackDeadlineSeconds": int(ackDeadline / time.Second),
		"deadLetterPolicy": map[string]any{"deadLetterTopic": d.name("topics/dead"), "maxDeliveryAttempts": 100},
	})
}

const ackDeadline = 10 * time.Second

func (d *deployment) name(of string) string { return "projects/" + d.project + "/" + of }

// rest makes a call of the Pub/Sub emulator's REST interface.
func (d *deployment) rest(t *testing.T, method, path string, body any) []byte {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, "http://"+d.pubsub+"/v1/"+d.name(path), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %v %s", method, path, resp.Status, err, answer)
	}
	return answer
}

// noDeadLetters checks that Pub/Sub's own dead letters are empty.
func (d *deployment) noDeadLetters(t *testing.T) {
	t.Helper()
	got := d.rest(t, http.MethodPost, "subscriptions/dead:pull", map[string]any{"maxMessages": 10, "returnImmediately": true})
	if strings.Contains(string(got), "ackId") {
		t.Errorf("messages are in Pub/Sub's dead letters: %s", got)
	}
}

// noDeadLetters checks that the store has none.
func (p *process) noDeadLetters(t *testing.T) {
	t.Helper()
	if status, text := p.get("/v1/dead-letters"); status != http.StatusOK || !strings.Contains(text, `"dead_letters":[]`) {
		t.Errorf("dead letters: got %d %s, want none", status, text)
	}
}

func (d *deployment) bus() string {
	return "pubsub://" + d.project + "/increments?subscription=aggregators"
}
func (d *deployment) store() string { return "datastore://" + d.project }

func (d *deployment) publisher(t *testing.T, flags ...string) *process {
	t.Helper()
	return start(t, d.env, "publisher", append([]string{"--bus", d.bus()}, flags...)...).ready(t)
}

func (d *deployment) aggregator(t *testing.T, flags ...string) *process {
	t.Helper()
	return start(t, d.env, "aggregator", append([]string{"--bus", d.bus(), "--store", d.store()}, flags...)...).ready(t)
}

func (d *deployment) reader(t *testing.T, flags ...string) *process {
	t.Helper()
	return start(t, d.env, "reader", append([]string{"--store", d.store(), "--cache", "memcached://" + d.cache.Host()}, flags...)...).ready(t)
}

// An answer is a reader's answer about counters.
type answer struct {
	Totals []answerTotal
	Lag    *float64
}

type answerTotal struct {
	Counter string
	Total   int64
	AsOf    time.Time `json:"as_of"`
	Source  string
}

// ask asks for totals with max_staleness.
func (p *process) ask(staleness string, counters ...string) (answer, error) {
	var a answer
	body, err := json.Marshal(map[string]any{"counters": counters})
	if err != nil {
		return a, err
	}
	resp, err := client.Post(p.url+"/v1/totals?max_staleness="+staleness, "application/json", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return a, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return a, json.NewDecoder(resp.Body).Decode(&a)
}

// exact waits until the reader's totals are as wanted, and returns how long that took. A total that is
// too large fails at once.
func (p *process) exact(t *testing.T, limit time.Duration, want map[string]int64) time.Duration {
	t.Helper()
	var counters []string
	for name := range want {
		counters = append(counters, name)
	}
	slices.Sort(counters)
	limit += busy
	began := time.Now()
	for {
		short := p.short(t, counters, want)
		if short == "" {
			return time.Since(began)
		}
		if time.Since(began) > limit {
			t.Fatalf("after %s: %s", limit, short)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// short names the totals that are too small; "" if there are none.
func (p *process) short(t *testing.T, counters []string, want map[string]int64) string {
	t.Helper()
	got, err := p.ask("0s", counters...)
	if err != nil {
		return err.Error()
	}
	var missing int64
	short := ""
	for _, total := range got.Totals {
		n := want[total.Counter]
		if total.Total > n {
			t.Fatalf("%s: total is %d, want %d: something counted twice", total.Counter, total.Total, n)
		}
		if total.Total < n {
			missing += n - total.Total
			short = fmt.Sprintf("%d increments are missing; %s: total is %d, want %d", missing, total.Counter, total.Total, n)
		}
	}
	return short
}
