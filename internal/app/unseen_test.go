package app

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/inproc"
)

// The metric is the exact age of the oldest message that nobody has taken. It is absent if the bus
// cannot say it: a 0 would mean that none waits.
func TestUnseenMetric(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := inproc.New(inproc.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		want := func(when string, channel backend.Channel, want ...float64) {
			t.Helper()
			if got := unseenOf(t, channel); len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		want("before", b, 0)
		for range 2 {
			if err := b.Publish("t", message.NewMessage("m", []byte("x"))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1500 * time.Millisecond)
		}
		want("two messages wait", b, 3)
		want("another bus", struct{ backend.Channel }{b})
		out, err := b.Subscribe(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		first := <-out
		synctest.Wait()
		time.Sleep(time.Second)
		want("one is taken, and not acknowledged", b, 2.5)
		(<-out).Ack()
		synctest.Wait()
		want("both are taken", b, 0)
		first.Ack()
	})
}

func unseenOf(t *testing.T, channel backend.Channel) (values []float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(newReceiving(backend.OpenBus{Channel: channel}, "").Collect()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "countmill_unseen_seconds" {
			values = append(values, f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return values
}
