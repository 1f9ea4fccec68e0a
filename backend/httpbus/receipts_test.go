package httpbus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/publisher"
)

// A shared is a bus that several processes of a test use, as they use Pub/Sub: it acknowledges a
// message before anybody has folded it.
type shared struct{ *inproc.Bus }

// Close is left to the test.
func (shared) Close() error { return nil }

// onShared makes roles use a bus that others use too.
func onShared(t *testing.T, cfg app.Config, inner *inproc.Bus) app.Config {
	t.Helper()
	cfg.Bus, cfg.Buses = "shared:", []backend.Bus{{
		Scheme: "shared", Usage: "shared:",
		Open: func(context.Context, backend.URL, backend.BusConfig) (backend.OpenBus, error) {
			return backend.OpenBus{Channel: shared{inner}, Topic: "t"}, nil
		},
	}}
	return cfg
}

// A losing network loses the first answer to each batch. It checks that the second one has the same
// receipt.
type losing struct {
	t         *testing.T
	transport *http.Transport
	mu        sync.Mutex
	lost      map[string]string // receipts by bodies
	compared  int
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	res, err := l.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	var answer struct{ Receipt string }
	if err := json.Unmarshal(text, &answer); err != nil || res.StatusCode != http.StatusAccepted {
		return res, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first, again := l.lost[string(body)]
	if !again {
		l.lost[string(body)] = answer.Receipt
		gotConn(r)
		return nil, errors.New("the answer is lost")
	}
	if l.compared++; first != answer.Receipt {
		l.t.Errorf("the repeat of a batch got the receipt %q, and the first try %q", answer.Receipt, first)
	}
	return res, nil
}

// A program behind a batch receiver reads its increments back: at once, after each call, although the first
// answer to each batch was lost. Its token may be limited to prefixes.
func TestReadBackThroughAReceiver(t *testing.T) {
	t.Parallel()
	path, secrets := authtest.File(t,
		auth.Token{Name: "all", Scopes: auth.Scopes()}, auth.Token{Name: "page", Scopes: auth.Scopes(), Prefixes: []string{"page:"}})
	inner, err := inproc.New(inproc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inner.Close() }) // after all roles
	cfg := app.Config{Tokens: path}
	together, apart := up(t, cfg), up(t, onShared(t, cfg, inner))
	alone := cfg
	alone.Roles = app.Publisher
	for _, place := range []struct {
		name, receiver, reader string
		counted                bool // when the batch receiver answers
	}{
		{"up", together, together, true}, {"up with a bus", apart, apart, false}, {"publisher role", runs(t, onShared(t, alone, inner)), apart, false},
	} {
		for i, token := range secrets {
			t.Run(fmt.Sprintf("%s, token %d", place.name, i), func(t *testing.T) {
				t.Parallel()
				c, err := client.New(place.reader, client.WithToken(token))
				if err != nil {
					t.Fatal(err)
				}
				d := &behind{t: t, reader: c, counted: place.counted, prefix: fmt.Sprintf("page:%.3s:%d:", place.name, i)}
				d.run(place.receiver, token)
			})
		}
	}
}

// behind is a program behind a batch receiver.
type behind struct {
	*publisher.Publisher
	t       *testing.T
	reader  *client.Client
	counted bool
	prefix  string // of its counters
}

func (d *behind) run(receiver, token string) {
	network := &losing{t: d.t, transport: http.DefaultTransport.(*http.Transport).Clone(), lost: make(map[string]string)}
	defer network.transport.CloseIdleConnections()
	bus, err := httpbus.Open(receiver, httpbus.WithToken(token), httpbus.WithHTTPClient(&http.Client{Transport: network}))
	if err != nil {
		d.t.Fatal(err)
	}
	if d.Publisher, err = publisher.New(bus, publisher.Config{Linger: -1}); err != nil {
		d.t.Fatal(err)
	}
	one := func(counter, id string) countmill.Increment {
		return countmill.Increment{Counter: d.prefix + counter, Delta: 2, ID: id}
	}
	d.reads("alone", func() (publisher.Sent, error) { return d.Publish(d.t.Context(), one("alone", "")) }, "alone")
	d.reads("with an id", func() (publisher.Sent, error) { return d.Publish(d.t.Context(), one("id", "x"), one("beside", "")) }, "id", "beside")
	d.reads("with a key", func() (publisher.Sent, error) { return d.PublishKeyed(d.t.Context(), "", d.prefix, one("key", "")) }, "key")
	first, last := fmt.Sprintf("%0400d", 0), fmt.Sprintf("%0400d", 2000)
	d.reads("a flush of two messages", func() (publisher.Sent, error) {
		for i := range 2001 {
			if err := d.Add(fmt.Sprintf("%s%0400d", d.prefix, i), 2); err != nil {
				return publisher.Sent{}, err
			}
		}
		return d.Flush(d.t.Context())
	}, first, last)
	if err := errors.Join(d.Close(d.t.Context()), bus.Close()); err != nil {
		d.t.Error(err)
	}
	if network.compared < 5 {
		d.t.Errorf("%d batches were repeated, want 5 at least", network.compared)
	}
}

// reads calls write, and reads the counters back: each is 2.
func (d *behind) reads(what string, write func() (publisher.Sent, error), counters ...string) {
	d.t.Helper()
	sent, err := write()
	if err != nil {
		d.t.Fatalf("%s: %v", what, err)
	}
	option := client.WithAfter(sent.Receipt.String(), 5*time.Second)
	if d.counted {
		option = client.WithMinAsOf(sent.CountedAsOf)
	}
	if sent.Counted != d.counted || sent.Receipt.IsZero() != d.counted || sent.CountedAsOf.IsZero() == d.counted {
		d.t.Errorf("%s: got %+v, want a moment: %t, otherwise a receipt", what, sent, d.counted)
	}
	for i := range counters {
		counters[i] = d.prefix + counters[i]
	}
	totals, err := d.reader.Totals(d.t.Context(), counters, option)
	for deadline := time.Now().Add(time.Minute); errors.Is(err, countmill.ErrNotCountedYet) && time.Now().Before(deadline); { // a busy machine
		totals, err = d.reader.Totals(d.t.Context(), counters, option)
	}
	if err != nil {
		d.t.Errorf("%s: %v", what, err)
	}
	for _, total := range totals {
		if total.Total != 2 {
			d.t.Errorf("%s: the total of %.20s is %d, want 2", what, total.Counter, total.Total)
		}
	}
}
