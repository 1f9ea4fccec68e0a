package add

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// A contestant adds one to counters of a fixed set.
type contestant struct {
	name string
	// open returns a function that adds one to the counter with this index, and a function that returns
	// the sum of all counters at the end.
	open func(b *testing.B, names []string) (add func(i int), sum func() int64)
}

var contestants = []contestant{
	{"countmill/Add", openAdd},
	{"countmill/Counter.Add", openHandle},
	{"prometheus/CounterVec.WithLabelValues.Inc", openCounterVec},
	{"prometheus/Counter.Inc", openCounter},
	{"otel/Add-attribute-set", openOtelSet},
}

// BenchmarkAdd adds to one counter, and to 1,000 counters in turn, with one goroutine and with one for
// each CPU. It fails if increments are missing at the end.
func BenchmarkAdd(b *testing.B) {
	for _, n := range []struct {
		name  string
		names int
	}{{"hot", 1}, {"1000", 1000}} {
		names := load.Names(n.names)
		for _, c := range contestants {
			b.Run(n.name+"/one/"+c.name, func(b *testing.B) { one(b, c, names) })
			b.Run(n.name+"/parallel/"+c.name, func(b *testing.B) { parallel(b, c, names) })
		}
	}
}

func one(b *testing.B, c contestant, names []string) {
	add, sum := c.open(b, names)
	b.ReportAllocs()
	b.ResetTimer()
	at := 0
	for range b.N {
		add(at)
		if at++; at == len(names) {
			at = 0
		}
	}
	b.StopTimer()
	check(b, sum)
}

func parallel(b *testing.B, c contestant, names []string) {
	add, sum := c.open(b, names)
	var goroutines atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		at := int(goroutines.Add(1)) * 7919 % len(names) // at different places, or all goroutines would contend for one counter
		for pb.Next() {
			add(at)
			if at++; at == len(names) {
				at = 0
			}
		}
	})
	b.StopTimer()
	check(b, sum)
}

func check(b *testing.B, sum func() int64) {
	b.Helper()
	if got := sum(); got != int64(b.N) {
		b.Fatalf("the counters sum to %d after %d increments", got, b.N)
	}
}

// summing is a bus that adds up its messages.
type summing struct{ total atomic.Int64 }

func (s *summing) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		batch, err := wire.Decode(m.Payload)
		if err != nil {
			return err
		}
		for _, p := range batch.Parts {
			for _, e := range p.Entries {
				s.total.Add(e.Delta)
			}
		}
	}
	return nil
}

// openPublisher has default lingers: four times a second it sends the sums, as in a service.
func openPublisher(b *testing.B) (*publisher.Publisher, func() int64) {
	bus := &summing{}
	pub, err := publisher.New(bus, publisher.Config{})
	if err != nil {
		b.Fatal(err)
	}
	return pub, func() int64 {
		if err := pub.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		return bus.total.Load()
	}
}

func openAdd(b *testing.B, names []string) (func(int), func() int64) {
	pub, sum := openPublisher(b)
	return func(i int) {
		if err := pub.Add(names[i], 1); err != nil {
			b.Error(err)
		}
	}, sum
}

func openHandle(b *testing.B, names []string) (func(int), func() int64) {
	pub, sum := openPublisher(b)
	handles := make([]*publisher.Counter, len(names))
	for i, name := range names {
		var err error
		if handles[i], err = pub.Counter(name); err != nil {
			b.Fatal(err)
		}
	}
	return func(i int) {
		if err := handles[i].Add(1); err != nil {
			b.Error(err)
		}
	}, sum
}

func openCounterVec(b *testing.B, names []string) (func(int), func() int64) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "page_views_total"}, []string{"page"})
	return func(i int) { vec.WithLabelValues(names[i]).Inc() }, gathered(b, vec)
}

// openCounter returns a handle, as Prometheus advises if a label's values are known.
func openCounter(b *testing.B, names []string) (func(int), func() int64) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "page_views_total"}, []string{"page"})
	handles := make([]prometheus.Counter, len(names))
	for i, name := range names {
		handles[i] = vec.WithLabelValues(name)
	}
	return func(i int) { handles[i].Inc() }, gathered(b, vec)
}

func gathered(b *testing.B, c prometheus.Collector) func() int64 {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	return func() (sum int64) {
		families, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				sum += int64(m.GetCounter().GetValue())
			}
		}
		return sum
	}
}

// openOtelSet makes the attributes in advance, as OpenTelemetry advises for speed.
func openOtelSet(b *testing.B, names []string) (func(int), func() int64) {
	counter, sum := otelCounter(b)
	options := make([][]metric.AddOption, len(names))
	for i, name := range names {
		options[i] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("page", name)))}
	}
	return func(i int) { counter.Add(context.Background(), 1, options[i]...) }, sum
}

func otelCounter(b *testing.B) (metric.Int64Counter, func() int64) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithCardinalityLimit(0))
	counter, err := provider.Meter("bench").Int64Counter("page.views")
	if err != nil {
		b.Fatal(err)
	}
	return counter, func() (sum int64) {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			b.Fatal(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
					sum += point.Value
				}
			}
		}
		return sum
	}
}
