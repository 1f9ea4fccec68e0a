package gcppubsub_test

import (
	"context"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/testing/tracetest"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// A message of Pub/Sub carries its span as an attribute from one process to another.
func TestASpanTravelsOverPubSub(t *testing.T) {
	t.Parallel()
	f, spans := newFake(t), new(tracetest.Recorder)
	store := fakestore.New(fakestore.Options{Errorf: t.Errorf})
	sending, receiving := open(t, f.host, project("p")), open(t, f.host, project("p"))
	a, err := aggregator.New(receiving, store, aggregator.Config{Topic: "increments", Tracer: spans})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	p, err := publisher.New(sending, publisher.Config{Topic: "increments", Tracer: spans})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(wire.WithTrace(t.Context(), tracetest.Caller(1)), countmill.Increment{Counter: "a", Delta: 1}); err != nil {
		t.Fatal(err)
	}
	until(t, 20*time.Second, "counted", func() bool { return store.Total("a") == 1 })
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got := spans.Spans()
	if len(got) != 2 || got[0].Kind != wire.SendStep || got[1].Kind != wire.FoldStep {
		t.Fatalf("got %+v, want a message and a commit", got)
	}
	if got[0].Parent != tracetest.Caller(1) || got[1].Parent != got[0].Trace {
		t.Errorf("got %+v, want each step to be a child of the one before", got)
	}
	for _, m := range f.Messages() {
		if m.Attributes["traceparent"] != got[0].Trace.String() {
			t.Errorf("the message has attributes %v", m.Attributes)
		}
	}
}
