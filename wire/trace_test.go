package wire_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/wire"
)

const aTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParseTrace(t *testing.T) {
	t.Parallel()
	sampled := wire.ParseTrace(aTrace)
	if !sampled.Sampled || sampled.ID[0] != 0x0a || sampled.Span[7] != 0x31 || sampled.String() != aTrace {
		t.Fatalf("got %+v, %q", sampled, sampled)
	}
	not := strings.TrimSuffix(aTrace, "1") + "0"
	if got := wire.ParseTrace(not); got.Sampled || got.ID != sampled.ID || got.String() != not {
		t.Errorf("not sampled: got %+v, %q", got, got)
	}
	for _, same := range []string{
		strings.TrimSuffix(aTrace, "1") + "3",    // level 2: the id is random
		"01" + aTrace[2:],                        // a later version
		"cc" + aTrace[2:] + "-what-the-future-7", // with more fields
	} {
		if got := wire.ParseTrace(same); got != sampled {
			t.Errorf("%q: got %+v", same, got)
		}
	}
	if (wire.Trace{}).String() != "" {
		t.Error("the zero Trace has a text")
	}
}

// malformed are values of traceparent that break a rule of W3C Trace Context.
var malformed = []string{
	"", "0", strings.Repeat("0", 55), strings.Repeat("-", 55), strings.Repeat("x", 1<<20),
	aTrace[:54], aTrace + "0", aTrace + "-", aTrace + "-more", " " + aTrace, aTrace + " ",
	"ff" + aTrace[2:], "0x" + aTrace[2:], "-1" + aTrace[2:], "01" + aTrace[2:] + "more",
	strings.ToUpper(aTrace), strings.Replace(aTrace, "f7", "F7", 1), strings.Replace(aTrace, "b7", "g7", 1), strings.Replace(aTrace, "b7", "b\x00", 1),
	strings.ReplaceAll(aTrace, "-", "_"), strings.Replace(aTrace, "-01", "-0g", 1),
	"00-00000000000000000000000000000000-b7ad6b7169203331-01",
	"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
	"00-0af7651916cd43dd8448eb211c80319cé7ad6b7169203331-01",
}

func TestAMalformedTraceIsNone(t *testing.T) {
	t.Parallel()
	for _, text := range malformed {
		if got := wire.ParseTrace(text); got != (wire.Trace{}) {
			t.Errorf("%.80q: got %+v, want none", text, got)
		}
	}
}

// The span of a message or a header is none, or that of the text's own digits.
func FuzzParseTrace(f *testing.F) {
	f.Add(aTrace)
	for _, text := range malformed {
		f.Add(text[:min(len(text), 100)])
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := wire.ParseTrace(text)
		if got == (wire.Trace{}) {
			return
		}
		if again := wire.ParseTrace(got.String()); again != got {
			t.Errorf("%q: got %+v, and of its own text %+v", text, got, again)
		}
		if !strings.HasPrefix(text[2:], got.String()[2:53]) {
			t.Errorf("%q: got %q", text, got)
		}
	})
}

func TestTraceOfAContext(t *testing.T) {
	t.Parallel()
	want := wire.ParseTrace(aTrace)
	if got := wire.TraceOf(wire.WithTrace(t.Context(), want)); got != want {
		t.Errorf("got %+v", got)
	}
	if got := wire.TraceOf(context.Background()); got != (wire.Trace{}) {
		t.Errorf("without one: got %+v", got)
	}
}

func TestAnUnsampledSpanMarksNothing(t *testing.T) {
	t.Parallel()
	metadata := make(map[string]string)
	one := wire.ParseTrace(aTrace)
	one.Sampled = false
	one.Mark(metadata)
	if len(metadata) > 0 {
		t.Errorf("got %v", metadata)
	}
	one.Sampled = true
	if one.Mark(metadata); metadata["traceparent"] != aTrace {
		t.Errorf("got %v", metadata)
	}
}

// startOnly keeps the last step.
type startOnly struct{ step wire.Step }

func (s *startOnly) Start(step wire.Step) wire.Recording { s.step = step; return nil }

func TestTracesAreBoundedAndDistinct(t *testing.T) {
	t.Parallel()
	var all wire.Traces
	all.Add(wire.Trace{ID: [16]byte{1}, Span: [8]byte{200}}) // not sampled
	for range 2 {
		for i := range 100 {
			all.Add(wire.Trace{ID: [16]byte{1}, Span: [8]byte{byte(i + 1)}, Sampled: true})
		}
	}
	var got startOnly
	all.Start(&got, wire.FoldStep, "fold")
	if len(got.step.Links) != wire.MaxTraces-1 || got.step.Parent.Span[0] != 1 || slices.Contains(got.step.Links, got.step.Parent) {
		t.Errorf("parent %v and %d links", got.step.Parent, len(got.step.Links))
	}
}

func TestNothingIsRecordedWithoutASampledSpan(t *testing.T) {
	t.Parallel()
	var none wire.Traces
	var got startOnly
	none.Start(&got, wire.SendStep, "send").End("")
	wire.Traces{wire.ParseTrace(aTrace)}.Start(nil, wire.SendStep, "send").End("")
	if got.step.Name != "" {
		t.Errorf("a step was recorded: %+v", got.step)
	}
}
