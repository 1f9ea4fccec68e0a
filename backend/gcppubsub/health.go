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

	// emulatorStream is how long a stream from an emulator may last. Google's emulator
	// does not see that a stream was broken off: it goes on to send it messages, which
	// come back when their lease is over and may be sent the same way again, until the
	// stream's deadline, or for 90s where it has none.
	emulatorStream = 20 * time.Second
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

// intercept watches the streams that the client library opens and opens again. Each may
// last for limit, or for ever where that is 0.
func (h *health) intercept(s *stats, limit time.Duration) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if !strings.HasSuffix(method, "/StreamingPull") {
			return streamer(ctx, desc, cc, method, opts...)
		}
		ended := func() {}
		if limit > 0 {
			ctx, ended = context.WithTimeout(ctx, limit)
		}
		stream, err := streamer(ctx, desc, cc, method, opts...)
		w := &watched{ClientStream: stream, health: h, stats: s, limited: limit > 0, ended: ended}
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
	health  *health
	stats   *stats
	limited bool
	ended   context.CancelFunc
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
	w.ended()
	code := status.Code(err)
	if code == codes.Canceled || w.limited && code == codes.DeadlineExceeded {
		return // our own doing
	}
	w.stats.streamErrors.Add(1)
	w.health.failed(err)
}
