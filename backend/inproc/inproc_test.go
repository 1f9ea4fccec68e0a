package inproc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/bustest"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, cfg inproc.Config) *inproc.Bus {
	t.Helper()
	bus, err := inproc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return bus
}

func TestConformance(t *testing.T) {
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprint("WaitForAck=", wait), func(t *testing.T) {
			bustest.Run(t, func(t *testing.T) bustest.Bus {
				bus := open(t, inproc.Config{WaitForAck: wait})
				return bustest.Bus{Publisher: bus, Subscriber: bus, Topic: "t", WaitsForAck: wait, Redelivers: !wait, AnswersClosed: true}
			})
		})
	}
}

// publish starts a call and returns its answer.
func publish(bus *inproc.Bus, ctx context.Context, size int) <-chan error {
	answer := make(chan error, 1)
	go func() {
		answer <- bus.Publish("t", message.NewMessageWithContext(ctx, "id", make([]byte, size)))
	}()
	return answer
}

func pending(t *testing.T, answer <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-answer:
		t.Fatalf("Publish returned %v, want it to wait", err)
	default:
	}
}

func subscribe(t *testing.T, bus *inproc.Bus, ctx context.Context) <-chan *message.Message {
	t.Helper()
	messages, err := bus.Subscribe(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func TestPublishWaitsForSubscriberAndAck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := open(t, inproc.Config{WaitForAck: true})
		defer bus.Close()
		answer := publish(bus, wire.OfferOnce(t.Context()), 1)
		time.Sleep(time.Hour)
		pending(t, answer)
		messages := subscribe(t, bus, t.Context())
		m := <-messages
		if !wire.DeliveredOnce(m.Context()) {
			t.Error("a message does not say that it comes once")
		}
		time.Sleep(time.Hour) // there is no deadline for an ack
		pending(t, answer)
		select {
		case <-messages:
			t.Error("a message was delivered again while it was held")
		default:
		}
		m.Ack()
		if err := <-answer; err != nil {
			t.Errorf("acked: got %v", err)
		}
	})
}

func TestEndsAreErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(bus *inproc.Bus, unsubscribe, giveUp func())
		want error // the answer to the publisher of a held message
	}{
		"bus closed":       {func(bus *inproc.Bus, _, _ func()) { _ = bus.Close() }, countmill.ErrClosed},
		"subscriber ended": {func(_ *inproc.Bus, unsubscribe, _ func()) { unsubscribe() }, countmill.ErrClosed},
		"publisher left":   {func(_ *inproc.Bus, _, giveUp func()) { giveUp() }, countmill.ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bus := open(t, inproc.Config{WaitForAck: true})
				subscribed, unsubscribe := context.WithCancel(t.Context())
				calling, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				messages := subscribe(t, bus, subscribed)
				answer := publish(bus, calling, 1)
				m := <-messages
				test.end(bus, unsubscribe, giveUp)
				if err := <-answer; !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				m.Ack() // too late, and harmless
				unsubscribe()
				if _, ok := <-messages; ok {
					t.Error("the channel is open after the end")
				}
				_ = bus.Close()
				if err := bus.Publish("t", message.NewMessage("", nil)); !errors.Is(err, countmill.ErrClosed) {
					t.Errorf("after Close: got %v, want ErrClosed", err)
				}
			})
		})
	}
}

func TestMessageInLineOutlivesSubscribers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := open(t, inproc.Config{WaitForAck: true})
		first, end := context.WithCancel(t.Context())
		_ = subscribe(t, bus, first) // never receives
		answer := publish(bus, t.Context(), 1)
		pending(t, answer)
		end()
		pending(t, answer)
		(<-subscribe(t, bus, t.Context())).Ack()
		if err := <-answer; err != nil {
			t.Errorf("got %v", err)
		}
		_ = bus.Close()
	})
}

func TestPublisherTakesBackWhatNobodyTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := open(t, inproc.Config{WaitForAck: true, MaxBytes: 10_000})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		large, second := publish(bus, short, 20_000), publish(bus, t.Context(), 1)
		if err := <-large; !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		pending(t, second) // in the queue, or still waiting for room
		messages := subscribe(t, bus, t.Context())
		m := <-messages
		if len(m.Payload) != 1 {
			t.Error("a message that was taken back was delivered")
		}
		m.Ack()
		if err := <-second; err != nil {
			t.Error(err)
		}
		_ = bus.Close()
	})
}

func TestRoomIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := open(t, inproc.Config{MaxBytes: 20_000})
		if err := bus.Publish("t", message.NewMessage("", make([]byte, 14_000))); err != nil {
			t.Fatal(err)
		}
		blocked := publish(bus, t.Context(), 14_000)
		pending(t, blocked)
		messages := subscribe(t, bus, t.Context())
		(<-messages).Ack()
		if err := <-blocked; err != nil {
			t.Error(err)
		}
		waiting := publish(bus, t.Context(), 14_000)
		pending(t, waiting)
		_ = bus.Close()
		if err := <-waiting; !errors.Is(err, countmill.ErrClosed) {
			t.Errorf("waiting for room: got %v, want ErrClosed", err)
		}
	})
}

// TestSubscribersComeAndGo: a new subscriber gets the messages that the last one left.
func TestSubscribersComeAndGo(t *testing.T) {
	t.Parallel()
	bus := open(t, inproc.Config{WaitForAck: true})
	for range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		messages := subscribe(t, bus, ctx)
		next, done := context.WithCancel(t.Context())
		go cancel()
		taken := subscribe(t, bus, next)
		answer := publish(bus, t.Context(), 1)
		for settled := false; !settled; {
			select {
			case m, ok := <-messages:
				if !ok {
					messages = nil
				} else {
					m.Ack()
				}
			case m := <-taken:
				m.Ack()
			case err := <-answer:
				if settled = true; err != nil && !errors.Is(err, countmill.ErrClosed) {
					t.Error(err)
				}
			}
		}
		done()
	}
	_ = bus.Close()
}

// Only a publisher that waits for the ack gets the reply: another could not read it in time.
func TestRepliesAreForPublishersThatWait(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			bus := open(t, inproc.Config{WaitForAck: wait})
			defer bus.Close()
			messages := subscribe(t, bus, t.Context())
			offered := new(wire.Reply)
			answer := publish(bus, wire.OfferReply(t.Context(), offered), 1)
			m := <-messages
			if got := wire.ReplyOf(m.Context()); (got == offered) != wait || (got != nil) != wait {
				t.Errorf("WaitForAck %t: the message has the reply: %t", wait, got == offered)
			}
			m.Ack()
			if err := <-answer; err != nil {
				t.Error(err)
			}
		})
	}
}

// A message comes once only if its sender says so too, and only where the sender waits for the ack.
func TestOtherMessagesMayComeAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ wait, offered, once bool }{{true, true, true}, {true, false, false}, {false, true, false}, {false, false, false}} {
		synctest.Test(t, func(t *testing.T) {
			bus := open(t, inproc.Config{WaitForAck: tc.wait})
			ctx := t.Context()
			if tc.offered {
				ctx = wire.OfferOnce(ctx)
			}
			answer := publish(bus, ctx, 1)
			m := <-subscribe(t, bus, t.Context())
			if got := wire.DeliveredOnce(m.Context()); got != tc.once {
				t.Errorf("%+v: got %t", tc, got)
			}
			m.Ack()
			if err := <-answer; err != nil {
				t.Error(err)
			}
			_ = bus.Close()
		})
	}
}
