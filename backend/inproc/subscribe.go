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

// A subscription is a channel that messages may go to until ctx ends.
type subscription struct {
	ctx    context.Context
	cancel context.CancelFunc
	out    chan *message.Message
}

// Subscribe delivers the topic's messages until ctx ends or the bus is closed, then
// closes the channel. The end of ctx ends the messages' contexts too: settle what you
// hold before. A subscriber that does not receive keeps no message from the others.
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

// pump delivers a topic's messages while it has subscriptions. It alone sends on their
// channels and closes them.
func (b *Bus) pump(t *topic) {
	var d *delivery
	for {
		b.mu.Lock()
		if len(t.subscriptions) == 0 {
			b.putBackLocked(d)
			t.pumping = false
			b.mu.Unlock()
			return
		}
		if d == nil {
			d = t.takeLocked()
		}
		subscriptions := t.subscriptions
		b.mu.Unlock()
		s, sent := b.offer(t, subscriptions, d)
		switch {
		case sent:
			d = nil
		case s != nil:
			b.unsubscribe(t, s)
		}
	}
}

// offer gives d to the first subscription that receives. Otherwise it returns the
// subscription that ended, or nil when there may be more to see.
func (b *Bus) offer(t *topic, subscriptions []*subscription, d *delivery) (s *subscription, sent bool) {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(t.wake)}}
	copies := make([]*message.Message, len(subscriptions))
	releases := make([]context.CancelFunc, len(subscriptions))
	for i, s := range subscriptions {
		send := reflect.SelectCase{Dir: reflect.SelectSend} // never ready
		if d != nil {
			// A message lives for one delivery: every offer is a copy of its own.
			copies[i] = d.msg.Copy()
			held, release := context.WithCancel(s.ctx)
			copies[i].SetContext(wire.DeliverOnce(wire.PassReply(held, d.from)))
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

func (b *Bus) unsubscribe(t *topic, s *subscription) {
	b.mu.Lock()
	t.subscriptions = slices.DeleteFunc(slices.Clone(t.subscriptions), func(other *subscription) bool { return other == s })
	b.mu.Unlock()
	s.cancel()
	close(s.out)
}

// takeLocked returns the next message in line, nil for none.
func (t *topic) takeLocked() *delivery {
	e := t.line.Front()
	if e == nil {
		return nil
	}
	d := t.line.Remove(e).(*delivery)
	d.place = nil
	return d
}

// putBackLocked returns a message that no subscriber has seen.
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
	case isClosed(m.Acked()): // also when the subscription ended in the same moment
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
