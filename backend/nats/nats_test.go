package nats_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/bustest"
	"github.com/countmill/countmill/backend/nats"
	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(m)) }

const (
	stream = "increments"

	// wait is longer than any machine needs.
	wait = 2 * time.Minute
)

// open opens a bus on a server, and makes its stream. change changes its configuration.
func open(t testing.TB, addr string, change ...func(*nats.Config)) *nats.Bus {
	t.Helper()
	cfg := nats.Config{
		Servers: []string{addr}, Stream: stream, Create: true, AckWait: time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	bus, err := nats.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	return bus
}

func subscribe(t testing.TB, bus message.Subscriber) <-chan *message.Message {
	t.Helper()
	messages, err := bus.Subscribe(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func publish(t testing.TB, bus *nats.Bus, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := bus.Publish(stream, message.NewMessage(id, []byte(id))); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t testing.TB, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			t.Fatal("the channel was closed")
		}
		return m
	case <-time.After(wait):
		t.Fatalf("no message within %s", wait)
	}
	return nil
}

// silent fails if a message comes within d.
func silent(t testing.TB, messages <-chan *message.Message, d time.Duration) {
	t.Helper()
	select {
	case m, ok := <-messages:
		if ok {
			t.Errorf("message %s came", m.UUID)
		}
	case <-time.After(d):
	}
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(wait); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", wait, what)
		}
	}
}

// js is NATS's own client, for what other programs do.
func js(t testing.TB, addr string) jetstream.JetStream {
	t.Helper()
	conn, err := client.Connect("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestBus(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(t *testing.T) bustest.Bus {
		bus := open(t, emulator.NATS(t).Addr())
		return bustest.Bus{Publisher: bus, Subscriber: bus, Topic: stream, Redelivers: true, AnswersClosed: true, Lease: time.Second}
	})
}

// Messages that a bus holds at its end come to another bus at once, delivered or not.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	addr := emulator.NATS(t).Addr()
	late := func(c *nats.Config) { c.AckWait = 10 * time.Minute } // longer than the test waits
	first, second := open(t, addr, late), open(t, addr, late)
	publish(t, first, "delivered", "not delivered")
	receive(t, subscribe(t, first))
	until(t, "both are here", func() bool { return first.Stats().Held == 2 })
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	others := subscribe(t, second)
	receive(t, others)
	receive(t, others)
	if got, want := first.Stats(), (backend.BusStats{Deliveries: 2, Nacks: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := second.Stats(); got.Redeliveries != 2 || got.Held != 2 {
		t.Errorf("the second bus has %+v", got)
	}
}

// The operator shortens the ack wait. Messages that are held come again until the bus has seen it, and no longer.
func TestShorterAckWait(t *testing.T) {
	t.Parallel()
	addr := emulator.NATS(t).Addr()
	bus := open(t, addr, func(c *nats.Config) { c.AckWait = 10 * time.Minute })
	messages := subscribe(t, bus)
	publish(t, bus, "held")
	receive(t, messages)
	consumer, err := js(t, addr).Consumer(t.Context(), stream, "aggregators")
	if err != nil {
		t.Fatal(err)
	}
	cfg := consumer.CachedInfo().Config
	cfg.AckWait = time.Second
	if _, err := js(t, addr).UpdateConsumer(t.Context(), stream, cfg); err != nil {
		t.Fatal(err)
	}
	until(t, "it stays", func() bool {
		select {
		case <-messages:
			return false
		case <-time.After(5 * time.Second):
			return true
		}
	})
}

// Of messages that were acked before the end, none comes again; all others come.
func TestDrain(t *testing.T) {
	t.Parallel()
	addr := emulator.NATS(t).Addr()
	bus := open(t, addr, func(c *nats.Config) { c.AckWait = 10 * time.Minute }) // longer than the test waits
	const n = 400
	for i := range n {
		publish(t, bus, fmt.Sprint(i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	messages, err := bus.Subscribe(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	acked := make(map[string]bool)
	for i := range n / 2 {
		if m := receive(t, messages); i%2 == 0 {
			m.Ack()
			acked[m.UUID] = true
		}
	}
	cancel()
	for range messages { // until it is closed
	}
	again := subscribe(t, bus) // the same bus
	for range n - len(acked) {
		m := receive(t, again)
		if acked[m.UUID] {
			t.Errorf("message %s was acked and came again", m.UUID)
		}
		m.Ack()
	}
	silent(t, again, 2*time.Second)
}

// The bus never holds more than it may, by number and by bytes, and messages go on coming.
func TestBounds(t *testing.T) {
	t.Parallel()
	addr := emulator.NATS(t).Addr()
	for name, bound := range map[string]struct {
		change func(*nats.Config)
		most   int64
	}{
		"messages": {func(c *nats.Config) { c.MaxOutstanding = 4 }, 4},
		"bytes":    {func(c *nats.Config) { c.MaxBytes = 1 }, 2}, // two of the largest messages
	} {
		t.Run(name, func(t *testing.T) {
			bus := open(t, addr, bound.change)
			const n = 12
			for i := range n {
				if err := bus.Publish(stream, message.NewMessage(fmt.Sprint(i), make([]byte, 900<<10))); err != nil {
					t.Fatal(err)
				}
			}
			messages := subscribe(t, bus)
			for seen := 0; seen < n; {
				var held []*message.Message
				for len(held) < min(2, n-seen) {
					held = append(held, receive(t, messages))
				}
				<-time.After(100 * time.Millisecond) // for more of them
				if got := bus.Stats().Held; got > bound.most {
					t.Errorf("%d messages are here, want at most %d", got, bound.most)
				}
				for _, m := range held {
					m.Ack()
				}
				seen += len(held)
			}
			until(t, "all acks", func() bool { return bus.Stats().Held == 0 })
			if err := bus.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A killed server comes back with the messages that it acknowledged. It may have forgotten deliveries.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := emulator.NATS(t)
	bus := open(t, server.Addr())
	messages := subscribe(t, bus)
	publish(t, bus, "before")
	held := receive(t, messages)
	server.Kill()
	until(t, "an error of Publish", func() bool {
		return bus.Publish(stream, message.NewMessage("lost", nil)) != nil
	})
	until(t, "an error of Ready", func() bool { return bus.Ready() != nil })
	held.Ack()
	server.Start(t)
	until(t, "a message is taken", func() bool {
		return bus.Publish(stream, message.NewMessage("after", nil)) == nil
	})
	for id := ""; id != "after"; {
		m := receive(t, messages)
		if id = m.UUID; id == "lost" {
			t.Error("a message came that Publish had refused without a connection")
		}
		m.Ack()
	}
	until(t, "Ready again", func() bool { return bus.Ready() == nil })
	if bus.Stats().StreamErrors == 0 {
		t.Error("the lost connection was not counted")
	}
	info, err := js(t, server.Addr()).Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the stream is empty", func() bool {
		select {
		case m := <-messages: // again
			m.Ack()
		default:
		}
		i, err := info.Info(t.Context())
		return err == nil && i.State.Msgs == 0
	})
}

// A server that hangs is a failure of Publish and Ready, and no message is lost by it.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "waits for time-outs")
	server := emulator.NATS(t)
	bus := open(t, server.Addr())
	messages := subscribe(t, bus)
	publish(t, bus, "before")
	receive(t, messages).Ack()
	server.Pause()
	if err := bus.Publish(stream, message.NewMessage("maybe", nil)); err == nil || errors.Is(err, countmill.ErrClosed) {
		t.Errorf("Publish to a server that hangs: got %v", err)
	}
	until(t, "an error of Ready", func() bool { return bus.Ready() != nil })
	server.Continue()
	until(t, "a message is taken", func() bool { return bus.Publish(stream, message.NewMessage("after", nil)) == nil })
	for {
		m := receive(t, messages)
		m.Ack()
		if m.UUID == "after" {
			break
		}
	}
}

// A message that was delivered too often is given up, with the reason.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	addr := emulator.NATS(t).Addr()
	bus := open(t, addr)
	publish(t, bus, "poison")
	c, err := js(t, addr).Consumer(t.Context(), stream, "aggregators")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Nak(); err != nil {
			t.Fatal(err)
		}
	}
	letters := subscribe(t, bus.GivenUp())
	messages := subscribe(t, bus)
	publish(t, bus, "good")
	m := receive(t, letters)
	if want := "given up after deliveries: 100, of stream increments to consumer aggregators"; m.UUID != "poison" || m.Metadata.Get(wire.MetaGivenUp) != want {
		t.Errorf("got message %s, %q", m.UUID, m.Metadata.Get(wire.MetaGivenUp))
	}
	m.Ack()
	if m := receive(t, messages); m.UUID != "good" || m.Metadata.Get(wire.MetaGivenUp) != "" {
		t.Errorf("got message %s, %q", m.UUID, m.Metadata)
	}
}

// What other programs publish has an id that stays the same, and no two have the same id, even if the stream is
// made again. Nobody else sets the words of the broker.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	addr := emulator.NATS(t).Addr()
	other := js(t, addr)
	ids := make(map[string]bool)
	for range 2 {
		bus := open(t, addr)
		begin := time.Now()
		for _, id := range []string{"", "mine"} {
			m := &client.Msg{Subject: stream, Data: []byte(`{"counter":"a"}`), Header: client.Header{wire.MetaGivenUp: {"x"}, wire.MetaBrokerID: {"y"}, "key": {"value"}}}
			if id != "" {
				m.Header.Set(client.MsgIdHdr, id)
			}
			if _, err := other.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		messages := subscribe(t, bus)
		for range 2 {
			m := receive(t, messages)
			id := m.Metadata.Get(wire.MetaBrokerID)
			m.Nack()
			for {
				again := receive(t, messages)
				if again.Metadata.Get(wire.MetaBrokerID) == id {
					again.Ack()
					break
				}
				again.Nack()
			}
			if ids[id] && id != "mine" {
				t.Errorf("two messages have the id %s", id)
			}
			ids[id] = true
			published, err := time.Parse(time.RFC3339Nano, m.Metadata.Get(wire.MetaPublished))
			if err != nil || published.Before(begin.Add(-time.Second)) || published.After(time.Now().Add(time.Second)) {
				t.Errorf("got publish time %q", m.Metadata.Get(wire.MetaPublished))
			}
			if m.Metadata.Get(wire.MetaTopic) != stream || m.Metadata.Get("key") != "value" || m.Metadata.Get(wire.MetaGivenUp) != "" || string(m.Payload) != `{"counter":"a"}` {
				t.Errorf("got %q %q", m.Payload, m.Metadata)
			}
		}
		if err := bus.Close(); err != nil {
			t.Fatal(err)
		}
		if err := other.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids) != 3 || !ids["mine"] {
		t.Errorf("got ids %v", ids)
	}
}

// Unseen is the age of a message that nobody takes.
func TestUnseen(t *testing.T) {
	t.Parallel()
	addr := emulator.NATS(t).Addr()
	bus := open(t, addr, func(c *nats.Config) { c.MaxOutstanding = 1 })
	publish(t, bus, "first")
	messages := subscribe(t, bus)
	m := receive(t, messages)
	until(t, "all are taken", func() bool { return bus.Unseen() == 0 }) // a probe may have come before
	begin := time.Now()
	publish(t, bus, "second")
	until(t, "it is unseen", func() bool { return bus.Unseen() > 0 })
	if got, most := bus.Unseen(), time.Since(begin)+time.Second; got > most { // the server's clock is coarse
		t.Errorf("got %s, the message is %s old", got, most)
	}
	m.Ack()
	receive(t, messages).Ack()
	until(t, "it is seen", func() bool { return bus.Unseen() == 0 })
}

// Errors that a person must resolve say how.
func TestErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, fmt.Sprint(len(text)))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	server := emulator.NATS(t, `authorization { users: [{ user: "u", password: "secret" }] }`)
	small := emulator.NATS(t, "max_payload: 1000")
	core := emulator.NATS(t)
	for name, c := range map[string]struct {
		cfg  nats.Config
		want string // "" for none
	}{
		"no server":         {nats.Config{Servers: []string{"127.0.0.1:1"}}, "is a NATS server at 127.0.0.1:1 running?"},
		"no user":           {nats.Config{Servers: []string{server.Addr()}}, "name a user's file in credentials="},
		"wrong password":    {nats.Config{Servers: []string{server.Addr()}, Credentials: file("u:wrong")}, "name a user's file in credentials="},
		"no such file":      {nats.Config{Servers: []string{server.Addr()}, Credentials: dir + "/none"}, "no such file"},
		"no such form":      {nats.Config{Servers: []string{server.Addr()}, Credentials: file("nothing of this kind")}, "nor a line USER:PASSWORD"},
		"right password":    {nats.Config{Servers: []string{server.Addr()}, Credentials: file("u:secret\n"), Create: true}, ""},
		"small messages":    {nats.Config{Servers: []string{small.Addr()}}, "set max_payload"},
		"no stream":         {nats.Config{Servers: []string{core.Addr()}}, "create it: nats stream add increments --subjects=increments"},
		"too many replicas": {nats.Config{Servers: []string{core.Addr()}, Create: true, Replicas: 3}, "replicas > 1 not supported"},
		"bad name":          {nats.Config{Servers: []string{core.Addr()}, Stream: "a b"}, "the name of the stream must be"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.cfg.Stream == "" {
				c.cfg.Stream = stream
			}
			bus, err := nats.Open(t.Context(), c.cfg)
			if err == nil {
				_ = bus.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Streams and consumers that cannot serve are refused, and harmful settings are found.
func TestSettings(t *testing.T) {
	t.Parallel()
	ctx, addr := t.Context(), emulator.NATS(t).Addr()
	other := js(t, addr)
	work := func(change func(*jetstream.StreamConfig)) jetstream.StreamConfig {
		cfg := jetstream.StreamConfig{Name: stream, Subjects: []string{stream}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew}
		change(&cfg)
		return cfg
	}
	durable := func(change func(*jetstream.ConsumerConfig)) jetstream.ConsumerConfig {
		cfg := jetstream.ConsumerConfig{Durable: "aggregators", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1}
		change(&cfg)
		return cfg
	}
	for name, c := range map[string]struct {
		stream   func(*jetstream.StreamConfig)
		consumer func(*jetstream.ConsumerConfig)
		want     string
	}{
		"good":     {want: ""},
		"subject":  {stream: func(s *jetstream.StreamConfig) { s.Subjects = []string{"other"} }, want: "countmill publishes on increments"},
		"no ack":   {stream: func(s *jetstream.StreamConfig) { s.NoAck = true }, want: "does not acknowledge messages"},
		"size":     {stream: func(s *jetstream.StreamConfig) { s.MaxMsgSize = 1000 }, want: "messages of up to 1000 bytes"},
		"old":      {stream: func(s *jetstream.StreamConfig) { s.Discard, s.MaxMsgs = jetstream.DiscardOld, 9 }, want: "drops its oldest messages"},
		"age":      {stream: func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour }, want: "less than a day"},
		"memory":   {stream: func(s *jetstream.StreamConfig) { s.Storage = jetstream.MemoryStorage }, want: "a restart of the server loses them"},
		"interest": {stream: func(s *jetstream.StreamConfig) { s.Retention = jetstream.InterestPolicy }, want: "while the stream has no consumer"},
		"limits":   {stream: func(s *jetstream.StreamConfig) { s.Retention = jetstream.LimitsPolicy }, want: "acked messages stay"},
		"new": {func(s *jetstream.StreamConfig) { s.Retention = jetstream.LimitsPolicy }, func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy },
			"from before the consumer was made"},
		"gone":       {consumer: func(c *jetstream.ConsumerConfig) { c.Durable = "other" }, want: "Create it: nats consumer add"},
		"deliveries": {consumer: func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }, want: "after 5 deliveries"},
		"pending":    {consumer: func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 7 }, want: "hold at most 7 messages"},
		"filter":     {consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject = stream }, want: "a filter leaves messages uncounted"},
		"inactive":   {consumer: func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour }, want: "deleted when nobody uses it"},
		"wait":       {consumer: func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour }, want: "stay hidden for up to 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.stream == nil {
				c.stream = func(*jetstream.StreamConfig) {}
			}
			if c.consumer == nil {
				c.consumer = func(*jetstream.ConsumerConfig) {}
			}
			var s jetstream.Stream
			until(t, "the files of the stream before are gone", func() (made bool) {
				var err error
				s, err = other.CreateStream(ctx, work(c.stream))
				return err == nil
			})
			if _, err := s.CreateConsumer(ctx, durable(c.consumer)); err != nil {
				t.Fatal(err)
			}
			var report backend.Report
			nats.Examine(ctx, nats.Config{Servers: []string{addr}, Stream: stream}, &report)
			found := ""
			for _, f := range report.Findings {
				found += f.What + " " + f.Do + "\n"
			}
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("got findings %q, want %q", found, c.want)
			}
			if err := other.DeleteStream(ctx, stream); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A process whose requests for messages are refused is not ready.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	addr := emulator.NATS(t).Addr()
	bus := open(t, addr)
	s, err := js(t, addr).Stream(t.Context(), stream)
	if err == nil {
		err = s.DeleteConsumer(t.Context(), "aggregators")
	}
	if err == nil {
		_, err = s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "aggregators", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, MaxRequestBatch: 5})
	}
	if err != nil {
		t.Fatal(err)
	}
	subscribe(t, bus)
	until(t, "it is not ready", func() bool { err := bus.Ready(); return err != nil && strings.Contains(err.Error(), "MaxRequestBatch") })
}

// The rights that the page names are enough, and no others are given.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/howto/nats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(page), "```text\nauthorization {")
	block, _, end := strings.Cut(block, "```")
	if !ok || !end {
		t.Fatal("the page has no block of users")
	}
	block = "authorization {" + strings.ReplaceAll(block, "password: ...", `password: "secret"`)
	block = strings.Replace(block, "users: [", `users: [ { user: operator, password: "secret" }`, 1)
	addr := emulator.NATS(t, block).Addr()
	as := func(user string, create bool) *nats.Bus {
		file := filepath.Join(t.TempDir(), "user")
		if err := os.WriteFile(file, []byte(user+":secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		return open(t, addr, func(c *nats.Config) { c.Credentials, c.Create, c.MaxOutstanding = file, create, 1 })
	}
	as("operator", true)
	aggregator := as("aggregator", false)
	publish(t, as("publisher", false), "first", "second", "third")
	messages := subscribe(t, aggregator)
	receive(t, messages).Nack()
	m := receive(t, messages)
	silent(t, messages, 2*time.Second) // its lease is extended
	until(t, "another is unseen", func() bool { return aggregator.Unseen() > 0 })
	m.Ack()
	receive(t, messages).Ack()
	if err := aggregator.Ready(); err != nil {
		t.Error(err)
	}
	if err := aggregator.Publish(stream, message.NewMessage("x", nil)); err == nil {
		t.Error("an aggregator may publish")
	}
}

// A password that has changed is read when the client connects again.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	user, users := filepath.Join(dir, "user"), filepath.Join(dir, "users")
	set := func(password string) {
		t.Helper()
		err := errors.Join(os.WriteFile(user, []byte("u:"+password), 0o600),
			os.WriteFile(users, []byte("authorization { users: [{ user: u, password: "+password+" }] }"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	set("first")
	server := emulator.NATS(t, "include ../"+filepath.Base(dir)+"/users")
	bus := open(t, server.Addr(), func(c *nats.Config) { c.Credentials = user })
	publish(t, bus, "before")
	set("second")
	server.Kill()
	server.Start(t)
	until(t, "it is connected again", func() bool { return bus.Publish(stream, message.NewMessage("after", nil)) == nil })
}

// Connections are encrypted and checked by the authority that the configuration names.
func TestTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	web.Close()
	key, err := x509.MarshalPKCS8PrivateKey(web.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, data []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cert := write("cert", "CERTIFICATE", web.Certificate().Raw)
	addr := emulator.NATS(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q }", cert, write("key", "PRIVATE KEY", key))).Addr()
	if _, err := nats.Open(t.Context(), nats.Config{Servers: []string{addr}, Stream: stream}); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("without the authority: got %v", err)
	}
	bus := open(t, addr, func(c *nats.Config) { c.CA = cert })
	publish(t, bus, "secret")
	receive(t, subscribe(t, bus)).Ack()
	if _, err := nats.Open(t.Context(), nats.Config{Servers: []string{emulator.NATS(t).Addr()}, Stream: stream, CA: cert}); err == nil {
		t.Error("with an authority, a connection without encryption was accepted")
	}
}

// A cluster keeps messages on three servers. Each is killed in turn, so leaders change, and all acknowledged messages
// arrive.
func TestCluster(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "waits for elections")
	var routes []string
	for range 3 {
		port, err := child.KeepPort()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = port.Free() })
		routes = append(routes, port.Addr())
	}
	var servers []*emulator.NATSServer
	var addrs []string
	for i, route := range routes {
		servers = append(servers, emulator.NATS(t, fmt.Sprintf("server_name: n%d", i),
			fmt.Sprintf("cluster { name: c, listen: %q, routes: [nats://%s] }", route, strings.Join(routes, ", nats://"))))
		addrs = append(addrs, servers[i].Addr())
	}
	var bus *nats.Bus
	until(t, "the cluster has a leader", func() bool {
		var err error
		bus, err = nats.Open(t.Context(), nats.Config{Servers: addrs, Stream: stream, Create: true, Replicas: 3, AckWait: time.Second,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		return err == nil
	})
	t.Cleanup(func() { _ = bus.Close() })
	messages := subscribe(t, bus)
	var mu sync.Mutex
	missing := make(map[string]bool)
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for m := range messages {
			mu.Lock()
			delete(missing, m.UUID)
			mu.Unlock()
			m.Ack()
		}
	})
	n := 0
	send := func() {
		n++
		id := fmt.Sprint(n)
		mu.Lock()
		missing[id] = true
		mu.Unlock()
		until(t, "a message is taken", func() bool { return bus.Publish(stream, message.NewMessage(id, nil)) == nil })
	}
	for _, s := range servers {
		for range 20 {
			send()
		}
		s.Kill()
		for range 20 {
			send()
		}
		s.Start(t)
		until(t, "all have come", func() bool { mu.Lock(); defer mu.Unlock(); return len(missing) == 0 })
		c := js(t, s.Addr())
		until(t, "the server follows again", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			of, err := c.Stream(ctx, stream)
			if err != nil {
				return false
			}
			current := of.CachedInfo().Cluster
			return current.Leader != "" && !slices.ContainsFunc(current.Replicas, func(r *jetstream.PeerInfo) bool { return !r.Current })
		})
	}
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
	receiving.Wait()
}
