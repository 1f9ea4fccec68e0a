package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/backend/nats"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/publisher"
)

func TestMain(m *testing.M) { emulator.Around(m).Run() }

const topic = "increments"

// A closer is a publisher's bus.
type closer interface {
	publisher.Bus
	Close() error
}

// buses start a bus: its URL for the aggregator, and the publisher's end. api is the address of the aggregator's
// process, and empty before that runs.
var buses = []struct {
	name  string
	start func(b *testing.B) (url string, open func(api string) (closer, error))
}{
	{"httpbus", func(b *testing.B) (string, func(string) (closer, error)) {
		return "inproc:", func(api string) (closer, error) { return httpbus.Open(api) }
	}},
	{"nats", func(b *testing.B) (string, func(string) (closer, error)) {
		addr := emulator.NATS(b).Addr()
		return "nats://" + addr + "/" + topic, func(string) (closer, error) {
			return nats.Open(b.Context(), nats.Config{Servers: []string{addr}, Stream: topic, Create: true})
		}
	}},
	{"pubsub", func(b *testing.B) (string, func(string) (closer, error)) {
		host, project := emulator.PubSub(b), emulator.Project()
		b.Setenv("PUBSUB_EMULATOR_HOST", host)
		return "pubsub://" + project + "/" + topic + "?subscription=aggregators", func(string) (closer, error) {
			return gcppubsub.Open(b.Context(), gcppubsub.Config{Project: project, Topic: topic, Subscription: "aggregators"})
		}
	}},
}

// over runs `countmill up` on a bus and a Pebble store, and bench with a publisher on the same bus.
func over(b *testing.B, cfg publisher.Config, bench func(b *testing.B, p *publisher.Publisher, c *client.Client)) {
	for _, bus := range buses {
		b.Run(bus.name, func(b *testing.B) {
			url, open := bus.start(b)
			a, err := app.New(app.Config{Store: "pebble:" + b.TempDir(), Bus: url, Listen: "127.0.0.1:0", Create: true})
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- a.Run(ctx) }()
			defer func() { stop(); <-ended }()
			end, err := open("http://" + a.Addr())
			if err != nil {
				b.Fatal(err)
			}
			defer end.Close()
			cfg.Topic = topic
			p, err := publisher.New(end, cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close(context.Background())
			c, err := client.New("http://" + a.Addr())
			if err != nil {
				b.Fatal(err)
			}
			bench(b, p, c)
		})
	}
}

// seen waits until a total has all increments of a receipt.
func seen(b *testing.B, c *client.Client, counter string, sent publisher.Sent, want int64) {
	options := []client.ReadOption{client.WithMaxStaleness(0)}
	if !sent.Counted {
		options = append(options, client.WithAfter(sent.Receipt.String(), 5*time.Second))
	}
	total, err := c.Total(b.Context(), counter, options...)
	for tries := 0; errors.Is(err, countmill.ErrNotCountedYet) && tries < 10; tries++ {
		total, err = c.Total(b.Context(), counter, options...)
	}
	if err != nil || total.Total != want {
		b.Fatalf("got %+v, %v, want %d", total, err, want)
	}
}

// BenchmarkLatency is the time from a call of Publish until a read shows the increment, one after the other.
func BenchmarkLatency(b *testing.B) {
	over(b, publisher.Config{Linger: -1}, func(b *testing.B, p *publisher.Publisher, c *client.Client) {
		var took []time.Duration
		for i := 0; b.Loop(); i++ {
			began := time.Now()
			sent, err := p.Publish(b.Context(), countmill.Increment{Counter: "a", Delta: 1})
			if err != nil {
				b.Fatal(err)
			}
			seen(b, c, "a", sent, int64(i+1))
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	})
}

// BenchmarkThroughput adds to 10,000 counters, flushes after 100,000 increments, and ends when all are in the totals.
func BenchmarkThroughput(b *testing.B) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("counter-%d", i)
	}
	over(b, publisher.Config{}, func(b *testing.B, p *publisher.Publisher, c *client.Client) {
		const each = 100_000
		n := int64(0)
		for b.Loop() {
			for i := range each {
				if err := p.Add(names[i%len(names)], 1); err != nil {
					b.Fatal(err)
				}
			}
			n += each / int64(len(names))
			sent, err := p.Flush(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			seen(b, c, names[0], sent, n)
		}
		b.ReportMetric(float64(b.N)*each/b.Elapsed().Seconds(), "increments/s")
	})
}
