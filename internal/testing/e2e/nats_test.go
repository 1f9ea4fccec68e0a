package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
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

// often has increments wait for nothing: with many commits, more kills are between two steps of one.
const often = "none"

// buildWithoutGoogle builds countmill without Pub/Sub and Datastore, once for all tests.
var buildWithoutGoogle = sync.OnceValues(func() (string, error) { return build("nogoogle", []string{"CGO_ENABLED=0"}, "-tags", "nogoogle") })

// onNATS is a deployment on a NATS server and a schema of PostgreSQL of its own, of a countmill without Google's modules.
type onNATS struct {
	binary     string
	server     *emulator.NATSServer
	bus, store string
	stream     jetstream.Stream
	consumer   jetstream.Consumer
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
		d.consumer, err = d.stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
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
	return startBinary(t, d.binary, nil, "aggregator", "--bus", d.bus, "--store", d.store, "--create", "--count-within", often)
}

// others starts a publisher and a reader.
func (d *onNATS) others(t *testing.T) (publisher, reader *process) {
	t.Helper()
	return startBinary(t, d.binary, nil, "publisher", "--bus", d.bus, "--count-within", often).ready(t), startBinary(t, d.binary, nil, "reader", "--store", d.store).ready(t)
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
			aggregators = append(aggregators, d.aggregator(t).ready(t))
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
		<-time.After(time.Duration(source.IntN(400)) * time.Millisecond)
	}
	return struck
}

// run runs a command against a server, and returns what it printed.
func (d *onNATS) run(t *testing.T, server *process, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), d.binary, append(args, "--server", server.url)...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1 is for findings
		t.Fatalf("countmill %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// Readiness, metrics, doctor, status, receipts and dead letters work on NATS as with other buses.
func TestOperationsOnNATS(t *testing.T) {
	t.Parallel()
	d := deployNATS(t)
	d.aggregator(t).ready(t).kill() // it has made the tables
	publisher, reader := d.others(t)
	count := func(counter string) (receipt string) {
		t.Helper()
		resp, err := client.Post(publisher.url+"/v1/increments", "application/json", strings.NewReader(fmt.Sprintf(`{"counter":%q}`, counter)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var accepted struct{ Receipt string }
		if err := json.NewDecoder(resp.Body).Decode(&accepted); err != nil || accepted.Receipt == "" {
			t.Fatalf("got %s %v, want a receipt", resp.Status, err)
		}
		return accepted.Receipt
	}
	counted := func(counter, receipt string) {
		t.Helper()
		until(t, time.Minute, "the receipt to be counted", func() bool {
			status, body := reader.get("/v1/totals?counter=" + counter + "&after=" + url.QueryEscape(receipt))
			return status == http.StatusOK && strings.Contains(body, `"total":1`)
		})
	}

	// Without an aggregator a message is delivered too often.
	givenUp := count("given-up")
	for range 100 {
		m, err := d.consumer.Next(jetstream.FetchMaxWait(busy))
		if err == nil {
			err = m.Nak()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if status := d.run(t, reader, "status"); !strings.Contains(status, "No aggregator takes messages: accepted increments wait on the bus.") {
		t.Errorf("without aggregators the status is\n%s", status)
	}

	aggregator := d.aggregator(t).ready(t)
	counted("a", count("a"))
	var key string
	until(t, time.Minute, "a dead letter", func() bool {
		if list := d.run(t, reader, "dead", "list"); strings.Contains(list, "given up after deliveries: 100, of stream increments to consumer aggregators") {
			key = regexp.MustCompile(`(?m)^[0-9a-zA-Z_-]{16,}`).FindString(list)
		}
		return key != ""
	})
	d.run(t, reader, "dead", "replay", key)
	counted("given-up", givenUp)
	d.empty(t)
	for _, name := range []string{"countmill_bus_deliveries_total", "countmill_bus_acks_total", "countmill_given_up_messages_total"} {
		if got := aggregator.metric(t, name); got == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	if _, body := aggregator.get("/metrics"); !strings.Contains(body, `countmill_bus_acks_total{bus="nats"}`) || !strings.Contains(body, "countmill_unseen_seconds 0") {
		t.Error("the metrics do not name the bus, or lack countmill_unseen_seconds")
	}
	until(t, time.Minute, "no problems", func() bool { return !strings.Contains(d.run(t, reader, "status"), "No aggregator") })
	doctor := d.run(t, reader, "doctor", "--bus", d.bus, "--store", d.store)
	for _, want := range []string{"checked      reachability of NATS\n", "checked      stream\n", "checked      consumer\n", "checked      settings of NATS\n"} {
		if !strings.Contains(doctor, want) {
			t.Errorf("doctor does not say %q:\n%s", want, doctor)
		}
	}

	d.server.Kill()
	until(t, time.Minute, "the aggregator to be unready", func() bool {
		status, body := aggregator.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "nats: nothing is received")
	})
	if doctor := d.run(t, reader, "doctor", "--bus", d.bus); !strings.Contains(doctor, "reachability of NATS: ") || !strings.Contains(doctor, "a NATS server at "+d.server.Addr()+" running?") {
		t.Errorf("without a server doctor says\n%s", doctor)
	}
	d.server.Start(t)
	until(t, time.Minute, "the aggregator to be ready", func() bool {
		status, _ := aggregator.get("/readyz")
		return status == http.StatusOK
	})
	counted("b", count("b"))
}
