package backend

import (
	"context"

	"github.com/countmill/countmill/wire"
)

// Traces records spans and sends them to a collector.
type Traces interface {
	wire.Tracer
	// Close sends the spans that are left, until ctx ends. It drops the spans that it cannot send, and all later ones.
	Close(ctx context.Context) error
}
