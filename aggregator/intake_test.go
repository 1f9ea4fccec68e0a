package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// An inlet is an Intake between a test bus and a fake store, in virtual time.
type inlet struct {
	*testBus
	intake *aggregator.Intake
	finish func() error
}

func takeIn(t *testing.T, st *protocoltest.Store, cfg aggregator.IntakeConfig) *inlet {
	t.Helper()
	in := &inlet{testBus: newBus()}
	in.intake = aggregator.NewIntake(in.testBus, st, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.intake.Run(ctx) }()
	ended := false
	in.finish = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { _ = in.finish() })
	synctest.Wait()
	return in
}

// deliver delivers a message with metadata of the broker.
func (in *inlet) deliver(t *testing.T, payload []byte, metadata ...string) *message.Message {
	t.Helper()
	m := message.NewMessage("", payload)
	for i := 0; i < len(metadata); i += 2 {
		m.Metadata.Set(metadata[i], metadata[i+1])
	}
	select {
	case in.out <- m:
	case <-time.After(time.Hour):
		t.Fatal("the intake does not take the message")
	}
	synctest.Wait()
	return m
}

func TestAMessageThatWasGivenUpIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		in := takeIn(t, st, aggregator.IntakeConfig{})
		part := anonymous(one("a", 3))
		payload := wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: []wire.Part{part}})
		published := time.Now().Add(-time.Hour)
		for range 2 { // delivered twice
			m := in.deliver(t, payload, wire.MetaBrokerID, "copy-1", wire.MetaGivenUp, "given up after 100 deliveries",
				wire.MetaPublished, time.Now().Format(time.RFC3339Nano), wire.MetaFirstPublished, published.Format(time.RFC3339Nano))
			if !acked(m) {
				t.Fatal("not acknowledged")
			}
		}
		other := in.deliver(t, []byte("garbage"), wire.MetaBrokerID, "copy-2", wire.MetaPublished, published.Format(time.RFC3339Nano))
		letters := st.DeadLetters()
		if len(letters) != 2 || !acked(other) || in.intake.Taken() != 3 {
			t.Fatalf("%d letters, %d taken; want 2 of 3", len(letters), in.intake.Taken())
		}
		for _, d := range letters {
			if !d.Maybe || !d.Time.Equal(published) || d.At.IsZero() {
				t.Errorf("letter %+v, want maybe applied, of an hour ago", d)
			}
		}
		// Its replay is like any other: here its parts were applied before.
		r := run(t, st, aggregator.Config{})
		r.send(t, part)
		for _, d := range letters {
			if d.Source == "copy-1" && d.Reason == "given up after 100 deliveries" {
				ask(t, st, d)
			}
		}
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 3})
		if got := st.DeadLetters(); len(got) != 1 || got[0].Source != "copy-2" || got[0].Reason != "given up by the bus" {
			t.Errorf("letters %+v, want only the garbage", got)
		}
	})
}

// While the store is unavailable messages are held; at the end they go back.
func TestAnIntakeHoldsUnwrittenDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.On("write letter", protocoltest.Script(protocoltest.UnknownNotApplied, protocoltest.Deployment, protocoltest.UnknownApplied))
		in := takeIn(t, st, aggregator.IntakeConfig{})
		m := in.deliver(t, []byte("x"), wire.MetaBrokerID, "1")
		if acked(m) || nacked(m) {
			t.Error("settled before it is written")
		}
		settle(time.Minute)
		if !acked(m) || len(st.DeadLetters()) != 1 {
			t.Errorf("acked %t, %d letters; want the one", acked(m), len(st.DeadLetters()))
		}
		st.On("write letter", func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		m = in.deliver(t, []byte("y"), wire.MetaBrokerID, "2")
		settle(time.Hour)
		if err := in.finish(); err != nil || acked(m) || !nacked(m) {
			t.Errorf("finish: %v; acked %t, nacked %t; want it given back", err, acked(m), nacked(m))
		}
	})
}

// The end does not abort a write under way.
func TestAnIntakeFinishesItsWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, protocoltest.Options{Latency: time.Second})
		in := takeIn(t, st, aggregator.IntakeConfig{})
		m := in.deliver(t, []byte("x"))
		if err := in.finish(); err != nil || !acked(m) || len(st.DeadLetters()) != 1 {
			t.Errorf("finish: %v; acked %t, %d letters; want one", err, acked(m), len(st.DeadLetters()))
		}
	})
}

func TestAnIntakeKeepsItsRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		in := takeIn(t, st, aggregator.IntakeConfig{Rate: 2})
		began := time.Now()
		for i := range 22 {
			in.deliver(t, fmt.Appendf(nil, "%d", i))
		}
		settle(time.Second)
		if took := time.Since(began); took < 10*time.Second || took > 15*time.Second {
			t.Errorf("22 letters at 2 a second took %s", took)
		}
	})
}

// The intake retries a bus that is unavailable; a closed bus ends it.
func TestAnIntakeSubscribesAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bus := &moody{testBus: newBus(), errs: []error{errors.New("away"), errors.New("away")}}
		in := aggregator.NewIntake(bus, large(t), aggregator.IntakeConfig{})
		ended := make(chan error, 1)
		go func() { ended <- in.Run(t.Context()) }()
		settle(time.Minute)
		if bus.asked != 3 {
			t.Errorf("asked %d times, want 3", bus.asked)
		}
		bus.errs = []error{nil, nil, nil, countmill.ErrClosed}
		bus.close()
		if err := <-ended; !errors.Is(err, countmill.ErrClosed) {
			t.Errorf("ended with %v, want ErrClosed", err)
		}
	})
}

// moody answers with errors first.
type moody struct {
	*testBus
	errs  []error
	asked int
}

func (m *moody) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	m.asked++
	if m.asked <= len(m.errs) && m.errs[m.asked-1] != nil {
		return nil, m.errs[m.asked-1]
	}
	return m.testBus.Subscribe(ctx, topic)
}

// Any publisher on the dead-letter topic can set any time. A store refuses some of them for
// ever, and an age in nanoseconds would wrap.
func TestATimeOutOfRangeIsNoneOfTheBrokers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		in := takeIn(t, st, aggregator.IntakeConfig{})
		payload := wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: []wire.Part{anonymous(one("a", 3))}})
		published := time.Now().Truncate(time.Second)
		for i, first := range []string{"0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "9999-12-31T23:59:59Z"} {
			m := in.deliver(t, payload, wire.MetaBrokerID, fmt.Sprint("copy-", i), wire.MetaFirstPublished, first,
				wire.MetaPublished, published.Format(time.RFC3339Nano))
			if !acked(m) {
				t.Errorf("first published at %s: not acknowledged", first)
			}
		}
		for _, d := range st.DeadLetters() {
			if !d.Time.Equal(published) {
				t.Errorf("a letter is of %s, want %s, as the copy says", d.Time, published)
			}
		}
	})
}
