package gcppubsub

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

// A streamFake is an inner stream of a turning one.
type streamFake struct {
	grpc.ClientStream
	ctx    context.Context
	deaf   bool          // does not notice a half-close
	closed chan struct{} // by CloseSend
	sent   []any
}

func (f *streamFake) SendMsg(m any) error {
	f.sent = append(f.sent, m)
	return nil
}

func (f *streamFake) CloseSend() error {
	close(f.closed)
	return nil
}

func (f *streamFake) RecvMsg(any) error {
	seen := f.closed
	if f.deaf {
		seen = nil
	}
	select {
	case <-seen:
		time.Sleep(turnWithin / 2)
		return io.EOF
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

// newTurningFake returns a turning stream and a function that returns its inner streams so far.
func newTurningFake(t *testing.T, deaf bool) (turning *turning, opened func() []*streamFake) {
	t.Helper()
	var all []*streamFake
	turning, err := newTurning(t.Context(), func(ctx context.Context) (grpc.ClientStream, error) {
		f := &streamFake{ctx: ctx, deaf: deaf, closed: make(chan struct{})}
		all = append(all, f)
		return f, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := turning.SendMsg("first"); err != nil {
		t.Fatal(err)
	}
	return turning, func() []*streamFake { return all }
}

// TestTurns: each stream ends in good order before its deadline, and the next one asks for the same
// subscription. The client library sees a single stream.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turning, opened := newTurningFake(t, false)
		received := make(chan error, 1)
		go func() { received <- turning.RecvMsg(nil) }()
		time.Sleep(5*(turnAfter+turnWithin/2) + turnAfter/2)
		synctest.Wait()
		if len(received) > 0 {
			t.Fatalf("RecvMsg ended: %v", <-received)
		}
		if got := len(opened()); got != 6 {
			t.Errorf("got %d streams after 5 turns, want 6", got)
		}
		for i, f := range opened() {
			if len(f.sent) != 1 || f.sent[0] != "first" {
				t.Errorf("stream %d: got requests %v, want the first", i, f.sent)
			}
			if last := i == len(opened())-1; (f.ctx.Err() == nil) != last {
				t.Errorf("stream %d: got context %v; want only the last to be open", i, f.ctx.Err())
			}
		}
		if err := turning.CloseSend(); err != nil {
			t.Error(err)
		}
		if err := <-received; !errors.Is(err, io.EOF) {
			t.Errorf("closed by the caller: got %v, want EOF", err)
		}
		time.Sleep(2 * turnAfter)
		if got := len(opened()); got != 6 {
			t.Errorf("got %d streams after CloseSend, want no more", got)
		}
	})
}

// TestCloseSendInATurn: no further stream is opened.
func TestCloseSendInATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turning, opened := newTurningFake(t, false)
		received := make(chan error, 1)
		go func() { received <- turning.RecvMsg(nil) }()
		time.Sleep(turnAfter + turnWithin/4)
		if err := turning.CloseSend(); err != nil {
			t.Error(err)
		}
		if err := <-received; !errors.Is(err, io.EOF) || len(opened()) != 1 {
			t.Errorf("got %v and %d streams, want EOF and 1", err, len(opened()))
		}
	})
}

// TestTurnIsBounded, even if the server hangs: the client library opens the next stream.
func TestTurnIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turning, opened := newTurningFake(t, true)
		began := time.Now()
		err := turning.RecvMsg(nil)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != turnAfter+turnWithin {
			t.Errorf("got %v after %s", err, took)
		}
		if err := turning.SendMsg("a sign of life"); err != nil {
			t.Errorf("between two streams: %v", err)
		}
		if got := opened(); len(got) != 1 || len(got[0].sent) != 1 {
			t.Errorf("got %d streams, the first with %v", len(got), got[0].sent)
		}
	})
}
