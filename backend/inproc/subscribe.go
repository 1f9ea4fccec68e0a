package inproc

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A subscription is a channel that gets messages until ctx ends.
type subscription struct {
	ctx    context.Context
	cancel context.CancelFunc
	out    chan *message.Message
}

// Subscribe delivers the topic's messages until ctx ends or the bus is closed, then closes the channel.
// The end of ctx also ends the contexts of the messages: settle the ones you hold before. A subscriber
// that stops receiving does not keep messages from the others.
func (b *Bus) Subscribe(ctx context.Context, name string) (<-chan *message.Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("inproc: %w", countmill.ErrClosed)
	}
	s := &subscription{out: make(chan *message.Message)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	context.AfterFunc(b.life, s.cancel)
	t := b.topicLocked(name)
	t.subscriptions = append(slices.Clone(t.subscriptions), s)
	t.signal()
	if !t.pumping {
		t.pumping = true
		b.tasks.Go(func() { b.pump(t) })
	}
	return s.out, nil
}

// pump delivers a topic's messages while it has subscriptions. It is the only sender on their channels,
// and closes them.
func (b *Bus) pump(t *topic) {
	var d *delivery
	for {
		b.mu.Lock()
		if len(t.subscriptions) == 0 {
			b.putBackLocked(d)
			t.offered, t.pumping = nil, false
			b.mu.Unlock()
			return
		}
		if d == nil {
			d = t.takeLocked()
		}
		t.offered = d
		subscriptions := t.subscriptions
		b.mu.Unlock()
		s, sent := b.offer(t, subscriptions, d)
		switch {
		case sent:
			d = nil
			b.taken(t)
		case s != nil:
			b.unsubscribe(t, s)
		}
	}
}

// taken notes that a subscriber has the message that was offered.
func (b *Bus) taken(t *topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.offered = nil
}

// offer gives d to the first subscription that receives. Otherwise it returns a subscription that has
// ended, or nil if the topic may have changed.
func (b *Bus) offer(t *topic, subscriptions []*subscription, d *delivery) (s *subscription, sent bool) {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(t.wake)}}
	copies := make([]*message.Message, len(subscriptions))
	releases := make([]context.CancelFunc, len(subscriptions))
	for i, s := range subscriptions {
		send := reflect.SelectCase{Dir: reflect.SelectSend} // never ready
		if d != nil {
			// A message lives for one delivery, so every offer is a copy.
			copies[i] = d.msg.Copy()
			held, release := context.WithCancel(s.ctx)
			copies[i].SetContext(delivered(held, d.from))
			releases[i] = release
			send.Chan, send.Send = reflect.ValueOf(s.out), reflect.ValueOf(copies[i])
		}
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.ctx.Done())}, send)
	}
	chosen, _, _ := reflect.Select(cases)
	number := (chosen - 1) / 2
	sent = chosen > 0 && chosen%2 == 0
	for i, release := range releases {
		if release != nil && !(sent && i == number) {
			release()
		}
	}
	if chosen == 0 {
		return nil, false
	}
	s = subscriptions[number]
	if sent {
		b.tasks.Go(func() {
			defer releases[number]()
			b.await(s.ctx, d, copies[number])
		})
	}
	return s, sent
}

// delivered is the context of a delivery. A batch that another process may send again needs its
// markers, although this bus delivers it once.
func delivered(held, published context.Context) context.Context {
	ctx := wire.PassReply(held, published)
	if wire.OfferedOnce(published) {
		ctx = wire.DeliverOnce(ctx)
	}
	return ctx
}

func (b *Bus) unsubscribe(t *topic, s *subscription) {
	b.mu.Lock()
	t.subscriptions = slices.DeleteFunc(slices.Clone(t.subscriptions), func(other *subscription) bool { return other == s })
	b.mu.Unlock()
	s.cancel()
	close(s.out)
}

// takeLocked returns the next message of the queue, or nil if it is empty.
func (t *topic) takeLocked() *delivery {
	e := t.line.Front()
	if e == nil {
		return nil
	}
	d := t.line.Remove(e).(*delivery)
	d.place = nil
	return d
}

// putBackLocked returns a message that no subscriber has seen to the queue.
func (b *Bus) putBackLocked(d *delivery) {
	switch {
	case d == nil:
	case b.closed:
		b.settleLocked(d, fmt.Errorf("inproc: no subscriber took the message: %w", countmill.ErrClosed))
	default:
		d.queueLocked()
	}
}

// await waits until a message is settled or its subscription ends.
func (b *Bus) await(ctx context.Context, d *delivery, m *message.Message) {
	select {
	case <-m.Acked():
	case <-m.Nacked():
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case isClosed(m.Acked()): // even if the subscription ended at the same moment
		b.settleLocked(d, nil)
	case !b.cfg.WaitForAck && !b.closed:
		d.queueLocked()
	case isClosed(m.Nacked()):
		b.settleLocked(d, errNacked)
	default:
		b.settleLocked(d, fmt.Errorf("inproc: the subscriber ended without settling the message: %w", countmill.ErrClosed))
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
