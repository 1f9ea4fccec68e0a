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

	"github.com/countmill/countmill/backend"
)

const (
	// grace is how long a stream may be broken before Ready fails. Pub/Sub closes streams now and then,
	// and the client opens another within about a second.
	grace = 5 * time.Second

	// settle is how long a stream without messages must stay open to count as working: a refusal comes
	// at once.
	settle = 2 * time.Second
)

// health records whether messages can arrive from Pub/Sub. The client library itself retries broken
// streams without a word and without a limit.
type health struct {
	mu     sync.Mutex
	opened time.Time // when the open stream was opened; zero if none is open
	broken error     // why the latest stream ended, until another works
	since  time.Time // when streams began to break
	final  bool      // Pub/Sub has refused for good
}

// err returns why nothing can arrive, or nil.
func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !h.opened.IsZero() && now.Sub(h.opened) >= settle {
		h.broken, h.final = nil, false
	}
	if h.broken != nil && (h.final || now.Sub(h.since) >= grace) {
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

// ended records that nothing opens the stream again.
func (h *health) ended(err error) {
	h.failed(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.final = true
}

// probe looks the subscription up every ProbeEvery until ctx ends.
func (b *Bus) probe(ctx context.Context) {
	backend.Every(ctx, b.cfg.ProbeEvery, func() {
		call, cancel := context.WithTimeout(ctx, callTimeout/2)
		defer cancel()
		_, err := b.lookUp(call)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			err = fmt.Errorf("the subscription does not answer: %w", err)
		}
		b.gate.Probed(err)
	})
}

// intercept watches the streams that the client library opens. Those to an emulator turn.
func (h *health) intercept(c *backend.BusCounts, emulator bool) grpc.StreamClientInterceptor {
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
		w := &watched{ClientStream: stream, health: h, counts: c, turns: emulator}
		if err != nil {
			w.failed(err)
			return nil, err
		}
		h.open()
		return w, nil
	}
}

// A watched stream reports its state to health.
type watched struct {
	grpc.ClientStream
	health *health
	counts *backend.BusCounts
	turns  bool
}

// RecvMsg records the server's answers.
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
		return // this process ended the stream
	}
	w.counts.StreamErrors.Add(1)
	w.health.failed(err)
}
