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

// Google's emulator does not notice a broken stream, whether its connection was closed, was reset or is
// silent, or the call was cancelled. It continues to give messages to that stream, for a whole lease
// each time. It notices only two things: the client half-closes the stream, or the call's deadline
// passes. So this package half-closes its stream to an emulator every turnAfter and opens another. The
// deadline covers the case that the process has died. Leases are extended when 5s of them are left:
// when the leases of a dead process end, its stream has ended too.
const (
	turnAfter = 3 * time.Second
	// turnWithin is how long the emulator may take to end a stream in good order. If a stream ends by
	// its deadline instead, its last messages wait for the end of their leases.
	turnWithin = time.Second
)

// A turning stream is a series of streams that looks like one open stream to the client library.
type turning struct {
	open func(context.Context) (grpc.ClientStream, error)
	ctx  context.Context // of the call

	mu     sync.Mutex // also separates sends from half-closes
	inner  grpc.ClientStream
	end    context.CancelFunc // ends the inner stream
	first  any                // the request that names the subscription
	turn   *time.Timer
	closed bool // the caller has half-closed
	turned bool // this package has half-closed the inner stream
}

func newTurning(ctx context.Context, open func(context.Context) (grpc.ClientStream, error)) (*turning, error) {
	t := &turning{open: open, ctx: ctx}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t, t.nextLocked()
}

// nextLocked replaces the inner stream by a new one.
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
		return nil // RecvMsg returns the error
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
	_ = inner.CloseSend() // RecvMsg returns the error
}

func (t *turning) current() grpc.ClientStream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inner
}

// RecvMsg continues with the next stream when the server has ended one in good order.
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

// SendMsg drops messages between two streams. After the first request the client library only sends
// signs of life here, and the next stream begins with that first request.
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

// Header returns the header of the latest inner stream.
func (t *turning) Header() (metadata.MD, error) { return t.current().Header() }

// Trailer returns the trailer of the latest inner stream.
func (t *turning) Trailer() metadata.MD { return t.current().Trailer() }

// Context returns the context of the call.
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
