package gcppubsub

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// grace is how long a stream may be broken: Pub/Sub closes streams now and then, and
	// the client opens another within a second or so.
	grace = 5 * time.Second

	// settle is how long a stream must stay open to count as working, when nothing comes:
	// a refusal comes at once.
	settle = 2 * time.Second
)

// health is what is known of the way from Pub/Sub to here. The client library mends
// broken streams in silence, for ever.
type health struct {
	mu     sync.Mutex
	opened time.Time // of the stream that is open, else zero
	broken error     // why the latest one ended, until another works
	since  time.Time // when streams began to break
	final  bool      // Pub/Sub will not have it
	probe  error     // the latest answer to a probe
}

// err is why nothing comes in, or nil.
func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !h.opened.IsZero() && now.Sub(h.opened) >= settle {
		h.broken, h.final = nil, false
	}
	switch {
	case h.probe != nil:
		return fmt.Errorf("gcppubsub: the subscription does not answer: %w", h.probe)
	case h.broken != nil && (h.final || now.Sub(h.since) >= grace):
		return fmt.Errorf("gcppubsub: nothing is received since %s: %w", h.since.UTC().Format(time.RFC3339), h.broken)
	}
	return nil
}

func (h *health) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened = time.Now()
}

func (h *health) heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken, h.final = nil, false
}

func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	worked := !h.opened.IsZero() && now.Sub(h.opened) >= settle
	if h.broken == nil || worked {
		h.since, h.final = now, false
	}
	h.opened, h.broken = time.Time{}, err
}

// ended notes that the stream is not opened again by itself.
func (h *health) ended(err error) {
	h.failed(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.final = true
}

func (h *health) probed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probe = err
}

// probe asks for the subscription until ctx ends.
func (b *Bus) probe(ctx context.Context) {
	defer b.health.probed(nil)
	tick := time.NewTicker(b.cfg.ProbeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, callTimeout/2)
		_, err := b.lookUp(call)
		cancel()
		b.health.probed(err)
	}
}

// intercept watches the streams that the client library opens and opens again. Those to
// an emulator turn.
func (h *health) intercept(s *stats, emulator bool) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (stream grpc.ClientStream, err error) {
		open := func(ctx context.Context) (grpc.ClientStream, error) { return streamer(ctx, desc, cc, method, opts...) }
		if !strings.HasSuffix(method, "/StreamingPull") {
			return open(ctx)
		}
		if emulator {
			stream, err = newTurning(ctx, open)
		} else {
			stream, err = open(ctx)
		}
		w := &watched{ClientStream: stream, health: h, stats: s, turns: emulator}
		if err != nil {
			w.failed(err)
			return nil, err
		}
		h.open()
		return w, nil
	}
}

// A watched stream tells health what becomes of it.
type watched struct {
	grpc.ClientStream
	health *health
	stats  *stats
	turns  bool
}

// RecvMsg notes what the server says.
func (w *watched) RecvMsg(m any) error {
	err := w.ClientStream.RecvMsg(m)
	if err != nil {
		w.failed(err)
	} else {
		w.health.heard()
	}
	return err
}

func (w *watched) failed(err error) {
	code := status.Code(err)
	if code == codes.Canceled || w.turns && code == codes.DeadlineExceeded {
		return // our own doing
	}
	w.stats.streamErrors.Add(1)
	w.health.failed(err)
}
