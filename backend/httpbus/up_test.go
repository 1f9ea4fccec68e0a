package httpbus_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/bustest"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/publisher"
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

// Two publishers over HTTP: all that they confirm is in the totals when Publish returns. A batch that
// comes again counts once.
func TestUpCountsWhatIsConfirmed(t *testing.T) {
	t.Parallel()
	address := up(t, app.Config{})
	c, err := client.New(address)
	if err != nil {
		t.Fatal(err)
	}
	again := &repeating{http.DefaultTransport.(*http.Transport).Clone()}
	var all sync.WaitGroup
	for range 2 {
		bus, err := httpbus.Open(address, httpbus.WithHTTPClient(&http.Client{Transport: again}))
		if err != nil {
			t.Fatal(err)
		}
		p, err := publisher.New(bus, publisher.Config{Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for i := range 50 {
				if err := p.Add("a", 2); err != nil {
					t.Error(err)
				}
				_, err := p.Publish(t.Context(), countmill.Increment{Counter: "a", Delta: 3}, countmill.Increment{Counter: "b", Delta: 1, ID: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
				}
				if _, err := p.PublishKeyed(t.Context(), "", fmt.Sprint("k", i), countmill.Increment{Counter: "c", Delta: 1}); err != nil {
					t.Error(err)
				}
			}
			if err := errors.Join(p.Close(t.Context()), bus.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	again.transport.CloseIdleConnections()
	totals, err := c.Totals(t.Context(), []string{"a", "b", "c"}, client.WithMaxStaleness(0))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{500, 50, 50} {
		if totals[i].Total != want {
			t.Errorf("total of %s is %d, want %d", totals[i].Counter, totals[i].Total, want)
		}
	}
}

// repeating sends each request twice, and returns the second answer.
type repeating struct{ transport *http.Transport }

func (r *repeating) RoundTrip(req *http.Request) (*http.Response, error) {
	first := req.Clone(req.Context())
	var err error
	if first.Body, err = req.GetBody(); err != nil {
		return nil, err
	}
	res, err := r.transport.RoundTrip(first)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	return r.transport.RoundTrip(req)
}
