package e2e

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// natsAckWait is the ack wait of the consumer in these tests.
const natsAckWait = 2 * time.Second

// onNATS is a deployment on a NATS server and a schema of PostgreSQL of its own.
type onNATS struct {
	server     *emulator.NATSServer
	bus, store string
	stream     jetstream.Stream
}

func deployNATS(t *testing.T) *onNATS {
	t.Helper()
	longtest.Only(t, "builds countmill and runs it for many seconds")
	d := &onNATS{server: emulator.NATS(t), store: emulator.PostgresSchema(t)}
	d.bus = "nats://" + d.server.Addr() + "/increments"
	conn, err := nats.Connect("nats://"+d.server.Addr(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	d.stream, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "increments", Subjects: []string{"increments"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
	})
	if err == nil {
		_, err = d.stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
			Durable: "aggregators", AckPolicy: jetstream.AckExplicitPolicy, AckWait: natsAckWait, MaxDeliver: -1, MaxAckPending: -1,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *onNATS) aggregator(t *testing.T) *process {
	t.Helper()
	return start(t, nil, "aggregator", "--bus", d.bus, "--store", d.store, "--create")
}

// empty waits until every message is acked, which proves that nothing was given up or forgotten.
func (d *onNATS) empty(t *testing.T) {
	t.Helper()
	until(t, time.Minute, "the stream to be empty", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		info, err := d.stream.Info(ctx)
		return err == nil && info.State.Msgs == 0
	})
}

// Aggregators are killed, stopped in good order, and suspended for longer than the ack wait, and the broker is
// killed. Every accepted increment is counted once. COUNTMILL_TEST_CHAOS is how long that goes on (20s).
func TestNATS(t *testing.T) {
	t.Parallel()
	d := deployNATS(t)
	length := lengthOf(t, "COUNTMILL_TEST_CHAOS", 20*time.Second)
	aggregators := []*process{d.aggregator(t).ready(t)}
	publisher, reader := start(t, nil, "publisher", "--bus", d.bus).ready(t), start(t, nil, "reader", "--store", d.store).ready(t)
	l := startLoad(t, publisher, 8, 100)
	l.wait(t, 1000)
	for range 3 { // 1, 2, 4 of them
		aggregators = append(aggregators, d.aggregator(t))
	}
	struck := map[string]int{}
	source := rand.New(rand.NewPCG(seed(t), 7))
	for began := time.Now(); time.Since(began) < length; {
		i := source.IntN(len(aggregators))
		victim := aggregators[i]
		switch what := source.IntN(8); {
		case what < 4:
			struck["kills"]++
			victim.kill()
			aggregators[i] = d.aggregator(t)
		case what < 5:
			struck["stops"]++
			victim.ready(t).stop(t)
			aggregators[i] = d.aggregator(t)
		case what < 7:
			struck["suspensions"]++
			victim.pause(t)
			<-time.After(natsAckWait * 3 / 2)
			victim.resume(t)
		default:
			struck["kills of the broker"]++
			d.server.Kill()
			<-time.After(time.Duration(source.IntN(2000)) * time.Millisecond)
			d.server.Start(t)
		}
		<-time.After(time.Duration(source.IntN(1000)) * time.Millisecond)
	}
	reader.exact(t, 2*time.Minute, l.end())
	d.empty(t)
	reader.exact(t, time.Second, l.end()) // nothing came twice meanwhile
	var again float64
	for _, a := range aggregators {
		again += a.metric(t, "countmill_bus_redeliveries_total")
	}
	t.Logf("%d increments, %v; the last aggregators got %v messages again", l.accepted(), struck, again)
	if l.accepted() == 0 || len(struck) == 0 {
		t.Error("nothing happened")
	}
}

// Readiness, metrics, doctor and receipts work on NATS as with other buses.
func TestOperationsOnNATS(t *testing.T) {
	t.Parallel()
	d := deployNATS(t)
	aggregator := d.aggregator(t).ready(t)
	publisher, reader := start(t, nil, "publisher", "--bus", d.bus).ready(t), start(t, nil, "reader", "--store", d.store).ready(t)
	resp, err := client.Post(publisher.url+"/v1/increments", "application/json", strings.NewReader(`{"counter":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var accepted struct{ Receipt string }
	if err := json.NewDecoder(resp.Body).Decode(&accepted); err != nil || accepted.Receipt == "" {
		t.Fatalf("got %s %v, want a receipt", resp.Status, err)
	}
	until(t, time.Minute, "the receipt to be counted", func() bool {
		status, body := reader.get("/v1/totals?counter=a&after=" + url.QueryEscape(accepted.Receipt))
		return status == http.StatusOK && strings.Contains(body, `"total":1`)
	})
	d.empty(t)
	for _, name := range []string{"countmill_bus_deliveries_total", "countmill_bus_acks_total"} {
		if got := aggregator.metric(t, name); got == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	if _, body := aggregator.get("/metrics"); !strings.Contains(body, `countmill_bus_acks_total{bus="nats"}`) || !strings.Contains(body, "countmill_unseen_seconds 0") {
		t.Error("the metrics do not name the bus, or lack countmill_unseen_seconds")
	}
	d.server.Kill()
	until(t, time.Minute, "the aggregator to be unready", func() bool {
		status, body := aggregator.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "nats: nothing is received")
	})
	d.server.Start(t)
	until(t, time.Minute, "the aggregator to be ready", func() bool {
		status, _ := aggregator.get("/readyz")
		return status == http.StatusOK
	})
}
