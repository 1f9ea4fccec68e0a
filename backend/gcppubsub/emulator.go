package gcppubsub

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Google's emulator does not see that a stream was broken off, whether its connection was
// closed, reset or is silent, or the call was cancelled: it goes on to give the stream
// messages, for a whole lease each time. It sees two things: that the client half-closes
// the stream, and that the deadline of the call is over. So a stream to an emulator is
// half-closed and followed by another every now and then, and has a deadline for the case
// that this process is no more. Leases are extended while 5s of them are left: when those
// of a dead process are over, its stream is too.
const (
	turnAfter = 3 * time.Second
	// turnWithin is how long the emulator may take to end a stream in good order. What it
	// sent to one that ends by its deadline waits for the end of its lease.
	turnWithin = time.Second
)

// A turning stream looks to the client library like one that stays open.
type turning struct {
	open func(context.Context) (grpc.ClientStream, error)
	ctx  context.Context // of the call

	mu     sync.Mutex // also keeps sends and half-closes apart
	inner  grpc.ClientStream
	end    context.CancelFunc // of the inner stream
	first  any                // the request that names the subscription
	turn   *time.Timer
	closed bool // by the caller
	turned bool // half-closed here
}

func newTurning(ctx context.Context, open func(context.Context) (grpc.ClientStream, error)) (*turning, error) {
	t := &turning{open: open, ctx: ctx}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t, t.nextLocked()
}

// nextLocked opens an inner stream in the place of the one before.
func (t *turning) nextLocked() error {
	t.stopLocked()
	ctx, cancel := context.WithTimeout(t.ctx, turnAfter+turnWithin)
	inner, err := t.open(ctx)
	if err != nil {
		cancel()
		return err
	}
	t.inner, t.end, t.turned = inner, cancel, false
	t.turn = time.AfterFunc(turnAfter, func() { t.halfClose(inner) })
	if t.first == nil {
		return nil
	}
	err = inner.SendMsg(t.first)
	if errors.Is(err, io.EOF) {
		return nil // RecvMsg says why
	}
	return err
}

func (t *turning) stopLocked() {
	if t.end != nil {
		t.turn.Stop()
		t.end()
	}
}

func (t *turning) halfClose(inner grpc.ClientStream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inner != inner || t.closed {
		return
	}
	t.turned = true
	_ = inner.CloseSend() // RecvMsg says why not
}

func (t *turning) current() grpc.ClientStream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inner
}

// RecvMsg goes on with the next stream when the server has ended one in good order.
func (t *turning) RecvMsg(m any) error {
	for {
		err := t.current().RecvMsg(m)
		if err == nil {
			return nil
		}
		if again, err := t.ended(err); !again {
			return err
		}
	}
}

func (t *turning) ended(err error) (again bool, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !errors.Is(err, io.EOF) || !t.turned || t.closed {
		t.stopLocked()
		return false, err
	}
	if err := t.nextLocked(); err != nil {
		t.stopLocked()
		return false, err
	}
	return true, nil
}

// SendMsg drops what comes between two streams. After the first request the client
// library sends only signs of life here, and the next stream begins with that one.
func (t *turning) SendMsg(m any) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = m
	}
	if t.turned {
		return nil
	}
	return t.inner.SendMsg(m)
}

// Header is that of the latest inner stream.
func (t *turning) Header() (metadata.MD, error) { return t.current().Header() }

// Trailer is that of the latest inner stream.
func (t *turning) Trailer() metadata.MD { return t.current().Trailer() }

// Context is that of the call.
func (t *turning) Context() context.Context { return t.ctx }

// CloseSend half-closes for the caller: no stream follows.
func (t *turning) CloseSend() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.turned {
		return nil
	}
	return t.inner.CloseSend()
}
