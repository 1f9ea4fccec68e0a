package e2e

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// natsAckWait is the ack wait of the consumer in these tests.
const natsAckWait = 2 * time.Second

// buildWithoutGoogle builds countmill without Pub/Sub and Datastore, once for all tests.
var buildWithoutGoogle = sync.OnceValues(func() (string, error) { return build("nogoogle", []string{"CGO_ENABLED=0"}, "-tags", "nogoogle") })

// onNATS is a deployment on a NATS server and a schema of PostgreSQL of its own, of a countmill without Google's modules.
type onNATS struct {
	binary     string
	server     *emulator.NATSServer
	bus, store string
	stream     jetstream.Stream
}

func deployNATS(t *testing.T) *onNATS {
	t.Helper()
	longtest.Only(t, "builds countmill and runs it for many seconds")
	binary, err := buildWithoutGoogle()
	if err != nil {
		t.Fatal(err)
	}
	d := &onNATS{binary: binary, server: emulator.NATS(t), store: emulator.PostgresSchema(t)}
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
	return startBinary(t, d.binary, nil, "aggregator", "--bus", d.bus, "--store", d.store, "--create")
}

// others starts a publisher and a reader.
func (d *onNATS) others(t *testing.T) (publisher, reader *process) {
	t.Helper()
	return startBinary(t, d.binary, nil, "publisher", "--bus", d.bus).ready(t), startBinary(t, d.binary, nil, "reader", "--store", d.store).ready(t)
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

// One, two, four and three aggregators are killed, stopped in good order, and suspended for longer than the ack wait, and the
// broker is killed. After each of the four, every accepted increment is counted once. COUNTMILL_TEST_CHAOS is how long it
// goes on with three (20s).
func TestNATS(t *testing.T) {
	t.Parallel()
	d := deployNATS(t)
	length := lengthOf(t, "COUNTMILL_TEST_CHAOS", 20*time.Second)
	aggregators := []*process{d.aggregator(t).ready(t)}
	publisher, reader := d.others(t)
	source := rand.New(rand.NewPCG(seed(t), 7))
	counted := make(map[string]int64)
	for _, phase := range []struct {
		aggregators int
		length      time.Duration
	}{{1, 10 * time.Second}, {2, 10 * time.Second}, {4, 10 * time.Second}, {3, length}} {
		for len(aggregators) < phase.aggregators {
			aggregators = append(aggregators, d.aggregator(t))
		}
		for _, extra := range aggregators[phase.aggregators:] {
			extra.ready(t).stop(t)
		}
		aggregators = aggregators[:phase.aggregators]
		l := startLoad(t, publisher, 8, 100)
		l.wait(t, 1000)
		struck := d.strike(t, aggregators, source, phase.length)
		for counter, n := range l.end() {
			counted[counter] += n
		}
		took := reader.exact(t, 2*time.Minute, counted)
		d.empty(t)
		reader.exact(t, time.Second, counted) // nothing came twice meanwhile
		var again float64
		for _, a := range aggregators {
			again += a.ready(t).metric(t, "countmill_bus_redeliveries_total")
		}
		t.Logf("%d aggregators for %s: %d increments, %v; all %d totals exact %s later; the last aggregators got %v messages again",
			phase.aggregators, phase.length, l.accepted(), struck, len(counted), took.Round(time.Millisecond), again)
	}
}

// strike does harm to aggregators and the broker for a while, and returns how often it did what.
func (d *onNATS) strike(t *testing.T, aggregators []*process, source *rand.Rand, length time.Duration) map[string]int {
	t.Helper()
	struck := map[string]int{}
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
	return struck
}
