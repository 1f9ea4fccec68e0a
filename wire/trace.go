package wire

import (
	"context"
	"encoding/hex"
	"slices"
)

const (
	// MetaTrace is the metadata name of the span that sent a message, in the form of Trace.String. W3C Trace
	// Context gives that name to the HTTP header. Anybody who publishes on the topic can set it, so no count depends on it.
	MetaTrace = "traceparent"

	// MaxTraces is the most spans that one step names as its causes. A guess: a person follows a few.
	MaxTraces = 32
)

// A Trace names a span of a distributed trace, as W3C Trace Context does. The zero Trace names none.
type Trace struct {
	ID      [16]byte // of the trace: the same for all its spans
	Span    [8]byte
	Sampled bool // the spans of the trace are recorded
}

// traceLength is the length of version 00 of traceparent. Later versions may append fields.
const traceLength = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// String is the value of the header traceparent; empty for the zero Trace.
func (t Trace) String() string {
	if t == (Trace{}) {
		return ""
	}
	b := make([]byte, 0, traceLength)
	b = hex.AppendEncode(append(b, "00-"...), t.ID[:])
	b = hex.AppendEncode(append(b, '-'), t.Span[:])
	if t.Sampled {
		return string(append(b, "-01"...))
	}
	return string(append(b, "-00"...))
}

// ParseTrace reads a traceparent. It returns the zero Trace for text that breaks the rules of W3C Trace
// Context: such text is ignored, and refuses nothing.
func ParseTrace(text string) (t Trace) {
	if len(text) < traceLength || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Trace{}
	}
	var version, flags [1]byte
	if !unhex(version[:], text[:2]) || !unhex(t.ID[:], text[3:35]) || !unhex(t.Span[:], text[36:52]) || !unhex(flags[:], text[53:55]) {
		return Trace{}
	}
	longer := len(text) > traceLength
	switch {
	case version[0] == 0xff, t.ID == [16]byte{}, t.Span == [8]byte{}:
		return Trace{}
	case longer && (version[0] == 0 || text[traceLength] != '-'):
		return Trace{}
	}
	t.Sampled = flags[0]&1 != 0
	return t
}

// unhex decodes lower-case hexadecimal digits alone, as the standard demands.
func unhex(to []byte, text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(to, []byte(text))
	return err == nil
}

// Mark adds the span to the metadata of a message, if it is sampled.
func (t Trace) Mark(metadata map[string]string) {
	if t.Sampled {
		metadata[MetaTrace] = t.String()
	}
}

type traced struct{}

// WithTrace adds the span that a call belongs to.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traced{}, t)
}

// TraceOf is the span of WithTrace; zero if there is none.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traced{}).(Trace)
	return t
}

// A Tracer records steps as spans. Its methods are safe for concurrent use, and never block: a Tracer that
// cannot keep up drops spans.
type Tracer interface {
	// Start begins a step. The result is never nil.
	Start(s Step) Recording
}

// A Step is a request, a message or a commit, as one span shows it.
type Step struct {
	Kind StepKind
	// Name is a constant. It holds no name of a counter.
	Name string
	// Parent is the cause of the step. If it is zero, the step begins a trace, and the Tracer decides
	// whether it is sampled. Otherwise the Tracer may follow Parent.Sampled.
	Parent Trace
	// Links are further causes.
	Links []Trace
}

// A StepKind is the part that a step has in the way of increments.
type StepKind int

// The kinds of steps.
const (
	RequestStep StepKind = iota // a request over HTTP, with its answer
	SendStep                    // a message, until the bus has it
	FoldStep                    // a commit of the store
)

// A Recording is a step that has begun.
type Recording interface {
	// Trace names the step for later ones.
	Trace() Trace
	// End ends the step. failure is one word for its outcome, and empty if it succeeded.
	End(failure string, figures ...Figure)
}

// A Figure is a number of a step. It holds nothing that a caller wrote.
type Figure struct {
	Name  string // a name of OpenTelemetry's conventions, or countmill.NAME
	Value int64
}

// Traces are the sampled spans that lead to one step: the first MaxTraces of them, each once.
type Traces []Trace

// Add adds a span, if it is sampled and there is room.
func (ts *Traces) Add(t Trace) {
	if t.Sampled && len(*ts) < MaxTraces && !slices.Contains(*ts, t) {
		*ts = append(*ts, t)
	}
}

// Start begins the step that the spans lead to. The first one is its parent, so that at least one request
// has all its steps in its own trace. The others are links. Without any, nothing is recorded: only requests
// begin traces.
func (ts Traces) Start(by Tracer, kind StepKind, name string) Recording {
	if by == nil || len(ts) == 0 {
		return unrecorded{}
	}
	return by.Start(Step{Kind: kind, Name: name, Parent: ts[0], Links: ts[1:]})
}

// unrecorded is a step that nobody records.
type unrecorded struct{}

func (unrecorded) Trace() Trace          { return Trace{} }
func (unrecorded) End(string, ...Figure) {}
