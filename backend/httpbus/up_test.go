package httpbus_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/bustest"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/internal/app"
)

func gotConn(r *http.Request) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
}

// up runs `countmill up` until the test ends, and returns its address.
func up(t *testing.T, cfg app.Config) string {
	t.Helper()
	cfg.Store = "pebble:" + t.TempDir()
	return runs(t, cfg)
}

// runs runs roles until the test ends, and returns their address.
func runs(t *testing.T, cfg app.Config) string {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	a, err := app.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("up: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("up does not end")
		}
	})
	return "http://" + a.Addr()
}

// A tap is the bus of an `up` whose messages a test receives instead of the aggregator.
type tap struct{ *inproc.Bus }

// Subscribe delivers nothing: it is the aggregator's.
func (t tap) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	context.AfterFunc(ctx, func() { close(out) })
	return out, nil
}

// TestConformance: the suite of all buses, over HTTP to a real `up`.
func TestConformance(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(t *testing.T) bustest.Bus {
		inner, err := inproc.New(inproc.Config{WaitForAck: true})
		if err != nil {
			t.Fatal(err)
		}
		address := up(t, app.Config{Bus: "tap:", Buses: []backend.Bus{{
			Scheme: "tap", Usage: "tap:", OneProcess: true,
			Open: func(context.Context, backend.URL, backend.BusConfig) (backend.OpenBus, error) {
				return backend.OpenBus{Channel: tap{inner}, Topic: "t"}, nil
			},
		}}})
		bus, err := httpbus.Open(address)
		if err != nil {
			t.Fatal(err)
		}
		return bustest.Bus{
			Publisher: closing{bus}, Subscriber: inner, Topic: "t", WaitsForAck: true, AnswersClosed: true, PayloadOnly: true, Payload: payload,
		}
	})
}

// closing is a bus whose Close may report batches under way.
type closing struct{ *httpbus.Bus }

func (c closing) Close() error {
	if err := c.Bus.Close(); !errors.Is(err, countmill.ErrOutcomeUnknown) {
		return err
	}
	return nil
}
