package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
)

// A sharedStore is closed by the test and not by one of the Apps on it.
type sharedStore struct{ store.Store }

func (sharedStore) Close() error { return nil }

type sharedBus struct{ backend.Channel }

func (sharedBus) Close() error { return nil }

func shared(b backend.Channel) backend.OpenBus { return backend.OpenBus{Channel: sharedBus{b}} }

// Subscribe delivers as a bus between processes does: no message says that it comes once.
func (b sharedBus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	from, err := b.Channel.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	to := make(chan *message.Message)
	go func() {
		defer close(to)
		for m := range from {
			m.SetContext(bareContext{m.Context()})
			select {
			case to <- m:
			case <-ctx.Done():
				m.Nack()
			}
		}
	}()
	return to, nil
}

// A bareContext has no values.
type bareContext struct{ context.Context }

func (bareContext) Value(any) any { return nil }

// A reader shows the aggregators' lag, and how many are alive. With none the lag is absent.
func TestAReaderShowsTheLag(t *testing.T) {
	t.Parallel()
	s, err := pebble.Open(pebble.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := inproc.New(inproc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	begin := func(role Roles) *running {
		a, err := newApp(Config{Roles: role, Listen: "127.0.0.1:0"}, func(Config) (*backends, error) {
			return &backends{bus: shared(b), store: sharedStore{s}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return run(t, a)
	}
	reader, aggregator := begin(Reader), begin(Aggregator)
	defer reader.stop(t)
	shows := func(alive string, lag bool) func() bool {
		return func() bool {
			_, text := reader.call(t, "GET", "/metrics", "")
			return strings.Contains(text, "\ncountmill_aggregators_alive "+alive+"\n") && strings.Contains(text, "\ncountmill_lag_seconds 0\n") == lag
		}
	}
	reader.poll(t, "shown as alive", shows("1", true))
	aggregator.stop(t)
	reader.poll(t, "shown as gone", shows("0", false))
}

// Single roles are the same composition as `up`: each serves its own routes, and
// together they count, with markers, as a bus between processes delivers again.
func TestSingleRolesTogether(t *testing.T) {
	t.Parallel()
	s, err := pebble.Open(pebble.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := inproc.New(inproc.Config{WaitForAck: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cache, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	roles := make(map[Roles]*running)
	for _, role := range []Roles{Reader, Aggregator, Publisher} {
		cfg := Config{Roles: role, Listen: "127.0.0.1:0", Publisher: publisher.Config{Linger: time.Millisecond}, Aggregator: aggregator.Config{Linger: time.Millisecond}}
		a, err := newApp(cfg, func(Config) (*backends, error) {
			got := &backends{}
			if role != Reader {
				got.bus = shared(b)
			}
			if role != Publisher {
				got.store = sharedStore{s}
			}
			if role == Reader {
				got.cache = cache
			}
			return got, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		roles[role] = run(t, a)
		defer roles[role].stop(t) // publisher, aggregator, reader
	}
	for _, r := range roles {
		r.waitReady(t)
	}
	roles[Publisher].incr(t, `{"counter":"a","delta":3}`)
	roles[Reader].wantTotal(t, "a", 3)
	if got := roles[Aggregator].metric(t, "countmill_entities_written_total"); got < 3 {
		t.Errorf("the aggregator wrote %v entities, want a record, a marker and a shard", got)
	}
	for role, tc := range map[Roles]struct{ method, path, says string }{
		Publisher:  {"GET", "/v1/totals?counter=a", "this process runs the role publisher; GET /v1/totals is served by the role reader"},
		Aggregator: {"POST", "/v1/increments", "this process runs the role aggregator; POST /v1/increments is served by the role publisher"},
		Reader:     {"POST", "/v1/increments", "this process runs the role reader; POST /v1/increments is served by the role publisher"},
	} {
		status, text := roles[role].call(t, tc.method, tc.path, `{"counter":"a"}`)
		if status != 404 || !strings.Contains(text, ":not-found") || !strings.Contains(text, tc.says) {
			t.Errorf("%s: %s %s: got %d %s, want 404 and %s", role, tc.method, tc.path, status, text, tc.says)
		}
	}
	if status, text := roles[Publisher].call(t, "GET", "/v1/dead-letters", ""); status != 404 || !strings.Contains(text, "served by the role reader or aggregator") {
		t.Errorf("publisher: got %d %s", status, text)
	}
}
