package nats

import (
	"context"
	"fmt"

	"github.com/countmill/countmill/backend"
)

// Examine looks for mistakes of the stream and of the consumer, and makes neither.
func Examine(ctx context.Context, cfg Config, r *backend.Report) {
	const page, settings = "howto/nats.md", "settings of NATS"
	cfg.Create = false
	b, err := connect(cfg)
	if err != nil {
		r.Error("reachability of NATS", err, "Increments are neither sent nor counted.", page)
		return
	}
	defer func() { _ = b.Close() }() // it was only read
	r.Done("reachability of NATS", "")
	stream, err := b.prepare(ctx)
	if err != nil {
		r.Error("stream", err, "Increments are neither sent nor counted.", page)
		return
	}
	r.Done("stream", "")
	consumer, err := b.consumer(ctx)
	if err != nil {
		r.Error("consumer", err, "Aggregators get no messages.", page)
		return
	}
	r.Done("consumer", "")
	for _, h := range b.harmful(stream, consumer) {
		r.Find(backend.Finding{Check: settings, What: fmt.Sprintf("Stream %s, consumer %s: %s.", b.cfg.Stream, b.cfg.Consumer, h.what), Why: "Increments are lost or late.", Do: h.do, Page: page})
	}
	r.Done(settings, "")
}
