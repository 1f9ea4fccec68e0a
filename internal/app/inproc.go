package app

import (
	"context"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/inproc"
)

// inprocBus carries batches from the publisher to the aggregator of the same process.
func inprocBus() backend.Bus {
	return backend.Bus{
		Scheme: "inproc", Usage: "inproc:", OneProcess: true,
		Check: func(u backend.URL, _ backend.BusConfig) error { return u.Bare() },
		Open: func(_ context.Context, u backend.URL, c backend.BusConfig) (backend.OpenBus, error) {
			bus, err := inproc.New(inproc.Config{WaitForAck: true})
			return backend.OpenBus{Channel: bus}, err
		},
	}
}
