package gcppubsub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/bustest"
	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/wire"
)

// open opens a bus in a project of the test's own. change changes its configuration.
func open(t testing.TB, host string, change ...func(*gcppubsub.Config)) *gcppubsub.Bus {
	t.Helper()
	cfg := gcppubsub.Config{
		Project: emulator.Project(), Topic: "increments", Subscription: "aggregators",
		EmulatorHost: host, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	bus, err := gcppubsub.Open(t.Context(), cfg)
	for began := time.Now(); isSlow(err) && time.Since(began) < busy; {
		bus, err = gcppubsub.Open(t.Context(), cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	return bus
}

// isSlow reports whether the emulator of a busy machine did not answer in time.
func isSlow(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

func project(name string) func(*gcppubsub.Config) {
	return func(c *gcppubsub.Config) { c.Project = name }
}

func subscribe(t testing.TB, bus *gcppubsub.Bus) <-chan *message.Message {
	t.Helper()
	messages, err := bus.Subscribe(t.Context(), "increments")
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func publish(t testing.TB, bus *gcppubsub.Bus, id string, payload []byte) {
	t.Helper()
	if err := bus.Publish("increments", message.NewMessage(id, payload)); err != nil {
		t.Error(err)
	}
}

// publishMany publishes n messages from several goroutines.
func publishMany(t testing.TB, bus *gcppubsub.Bus, n, size int) {
	t.Helper()
	var wg sync.WaitGroup
	const at = 50
	for g := range at {
		wg.Go(func() {
			for i := g; i < n; i += at {
				publish(t, bus, fmt.Sprint(i), make([]byte, size))
			}
		})
	}
	wg.Wait()
}

// receive waits longer than an idle machine needs.
func receive(t testing.TB, messages <-chan *message.Message, within time.Duration) *message.Message {
	t.Helper()
	within += busy
	select {
	case m, ok := <-messages:
		if !ok {
			t.Fatal("the channel was closed")
		}
		return m
	case <-time.After(within):
		t.Fatalf("no message within %s", within)
	}
	return nil
}

func TestBus(t *testing.T) {
	t.Parallel()
	host := emulator.PubSub(t)
	bustest.Run(t, func(t *testing.T) bustest.Bus {
		bus := open(t, host)
		return bustest.Bus{Publisher: bus, Subscriber: bus, Topic: "increments", Redelivers: true, AnswersClosed: true}
	})
}

// TestForeignMessages publishes over the REST interface, as curl would.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	host := emulator.PubSub(t)
	id := emulator.Project()
	bus := open(t, host, project(id))
	for _, payload := range []string{`{"counter":"a"}`, "\xff\x00garbage", "-"} {
		sent := post(t, host, id, "increments", []byte(payload), map[string]string{wire.MetaBrokerID: "forged", wire.MetaTopic: "forged"})
		messages := subscribe(t, bus)
		for range 2 { // the second time after a nack
			m := receive(t, messages, 20*time.Second)
			if string(m.Payload) != payload {
				t.Errorf("got payload %q, want %q", m.Payload, payload)
			}
			if got := m.Metadata.Get(wire.MetaBrokerID); got != sent {
				t.Errorf("got broker id %q, want %q", got, sent)
			}
			if got, want := m.Metadata.Get(wire.MetaTopic), "projects/"+id+"/topics/increments"; got != want {
				t.Errorf("got topic %q, want %q", got, want)
			}
			published, err := time.Parse(time.RFC3339Nano, m.Metadata.Get(wire.MetaPublished))
			if age := time.Since(published); err != nil || age < -time.Second || age > 2*busy {
				t.Errorf("got publish time %s ago, error %v", age, err)
			}
			m.Nack()
		}
		receive(t, messages, 20*time.Second).Ack()
		bus = reopen(t, bus, host, id)
	}
}

func reopen(t *testing.T, bus *gcppubsub.Bus, host, id string) *gcppubsub.Bus {
	t.Helper()
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
	return open(t, host, project(id))
}

// post publishes over HTTP and returns the message id.
func post(t *testing.T, host, project, topic string, payload []byte, attributes map[string]string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"data": payload, "attributes": attributes}}})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: busy, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+host+"/v1/projects/"+project+"/topics/"+topic+":publish", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct{ MessageIds []string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.MessageIds) != 1 {
		t.Fatalf("got %s, %v, error %v", resp.Status, answer, err)
	}
	return answer.MessageIds[0]
}

// TestRedeliveriesAreCounted if Pub/Sub reports them.
func TestRedeliveriesAreCounted(t *testing.T) {
	t.Parallel()
	bus := open(t, emulator.PubSub(t), func(c *gcppubsub.Config) { c.DeadLetterTopic = "increments-dead" })
	messages := subscribe(t, bus)
	publish(t, bus, "x", nil)
	receive(t, messages, 20*time.Second).Nack()
	receive(t, messages, 20*time.Second).Ack()
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
	want := backend.BusStats{Deliveries: 2, Redeliveries: 1, Acks: 1, Nacks: 1}
	until(t, time.Minute, "all are counted", func() bool { return bus.Stats() == want })
}

// TestOneSubscription, even after the first has ended.
func TestOneSubscription(t *testing.T) {
	t.Parallel()
	bus := open(t, emulator.PubSub(t))
	ctx, cancel := contextOf(t)
	first, err := bus.Subscribe(ctx, "increments")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Subscribe(t.Context(), "increments"); err == nil {
		t.Error("a second subscription: got no error")
	}
	cancel()
	for range first { // until it is closed
	}
	second := subscribe(t, bus)
	publish(t, bus, "x", nil)
	receive(t, second, 20*time.Second).Ack()
}

var underRace bool

// TestHeldMessages holds as many messages as an aggregator may, for longer than their leases last, and
// measures the memory and goroutines of each.
func TestHeldMessages(t *testing.T) {
	longtest.Only(t, "takes half a minute")
	if underRace {
		t.Skip("the race detector takes no more than 8,128 goroutines; it runs without")
	}
	const n = 20_000
	bus := open(t, emulator.PubSub(t))
	publishMany(t, bus, n, 100)
	before := memory()
	messages := subscribe(t, bus)
	begin := time.Now()
	held := make(map[string]*message.Message, n)
	again := 0
	for len(held) < n {
		m := receive(t, messages, 30*time.Second)
		id := m.Metadata.Get(wire.MetaBrokerID)
		if held[id] != nil {
			again++
		}
		held[id] = m
	}
	t.Logf("%d messages after %s: %d bytes and %.1f goroutines each", n, time.Since(begin).Round(time.Millisecond),
		(memory()-before)/n, float64(runtime.NumGoroutine())/n)
	timer := time.After(15 * time.Second)
	for done := false; !done; {
		select {
		case <-messages:
			again++
		case <-timer:
			done = true
		}
	}
	if again > 0 {
		t.Errorf("%d messages came again while they were held", again)
	}
	if got := bus.Stats().Held; got < n {
		t.Errorf("Stats: got %d held, want %d", got, n)
	}
	for _, m := range held {
		m.Ack()
	}
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
	until(t, time.Minute, "nothing is held", func() bool { return bus.Stats().Held == 0 })
	if got := bus.Stats(); got.Acks != n || got.Nacks != 0 {
		t.Errorf("got %+v after acks of %d messages", got, n)
	}
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
