package aggregator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/testing/tracetest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// sendTraced delivers a message of one increment that carries text as its span.
func (b *testBus) sendTraced(t *testing.T, text string) *message.Message {
	t.Helper()
	m := message.NewMessage("", wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: []wire.Part{anonymous(one("a", 1))}}))
	m.Metadata.Set(wire.MetaTrace, text)
	b.deliver(t, m)
	return m
}

func TestACommitNamesItsMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		spans := new(tracetest.Recorder)
		r := run(t, large(t), aggregator.Config{Linger: time.Second, Tracer: spans})
		settle(time.Minute)
		first := tracetest.Caller(0)
		unsampled := tracetest.Caller(1)
		unsampled.Sampled = false
		r.sendTraced(t, first.String())
		r.sendTraced(t, unsampled.String())
		r.send(t, anonymous(one("a", 1)))
		for i := range 2 * wire.MaxTraces {
			r.sendTraced(t, tracetest.Caller(byte(10+i)).String())
		}
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 3 + 2*wire.MaxTraces})
		got := spans.Spans()
		if len(got) != 1 || got[0].Parent != first || got[0].Kind != wire.FoldStep || got[0].Failure != "" {
			t.Fatalf("got %+v, want one commit, a child of the first message", got)
		}
		if n := len(got[0].Links); n != wire.MaxTraces-1 || slices.Contains(got[0].Links, first) || slices.Contains(got[0].Links, unsampled) {
			t.Errorf("got links %v, want %d to sampled messages", got[0].Links, wire.MaxTraces-1)
		}
		if want := (wire.Figure{Name: "countmill.parts", Value: 3 + 2*wire.MaxTraces}); got[0].Figures[0] != want {
			t.Errorf("got %v, want %v", got[0].Figures[0], want)
		}
	})
}

// Anybody who publishes on the topic can set a message's span.
func TestAHostileSpanChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		spans := new(tracetest.Recorder)
		r := run(t, large(t), aggregator.Config{Tracer: spans})
		good := tracetest.Caller(1).String()
		hostile := []string{
			"", "x", good + "0", good + "-more", "ff" + good[2:], strings.ToUpper("00-" + strings.Repeat("ab", 16) + good[35:]), strings.Repeat("0", 55),
			strings.Repeat(good, 10_000), "\x00" + good[1:], good[:52] + "\r\n" + good[54:], "../../" + good, "'; DROP TABLE spans; --",
		}
		for _, text := range hostile {
			m := r.sendTraced(t, text)
			settle(time.Second)
			if !acked(m) {
				t.Errorf("%.80q: the message is not acknowledged", text)
			}
		}
		r.want(t, map[string]int64{"a": int64(len(hostile))})
		if got, letters := spans.Spans(), r.reasons(); len(got) > 0 || len(letters) > 0 {
			t.Errorf("got spans %+v and dead letters %q, want none", got, letters)
		}
	})
}

// Each try is a span of its own, with the outcome and without the text of the error.
func TestACommitThatFailsIsAFailedSpan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		spans, st := new(tracetest.Recorder), large(t)
		r := run(t, st, aggregator.Config{Tracer: spans})
		settle(time.Minute)
		answers := protocoltest.Script(protocoltest.NotApplied, protocoltest.UnknownNotApplied)
		st.OnFold(func(n int, _ *store.Commit) protocoltest.Answer { return answers(n) })
		r.sendTraced(t, tracetest.Caller(1).String())
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1})
		var outcomes []string
		for _, s := range spans.Spans() {
			outcomes = append(outcomes, s.Failure)
			if s.Parent != tracetest.Caller(1) {
				t.Errorf("a try is no child of the message: %+v", s)
			}
		}
		if want := []string{"not_applied", "unknown_outcome", ""}; !slices.Equal(outcomes, want) {
			t.Errorf("got outcomes %q, want %q", outcomes, want)
		}
	})
}
