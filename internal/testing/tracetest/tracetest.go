// Package tracetest has a wire.Tracer that keeps spans in memory, for tests.
package tracetest

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/countmill/countmill/wire"
)

// A Recorder samples every trace that begins with it, and follows the decision of a parent. It is safe for
// concurrent use.
type Recorder struct {
	mu    sync.Mutex
	last  uint64
	spans []Span
}

// A Span is a step that was sampled and has ended.
type Span struct {
	wire.Step
	Trace   wire.Trace
	Failure string
	Figures []wire.Figure
}

// Start implements wire.Tracer.
func (r *Recorder) Start(s wire.Step) wire.Recording {
	s.Links = slices.Clone(s.Links)
	t := s.Parent
	if t == (wire.Trace{}) {
		t = wire.Trace{ID: [16]byte{1}, Sampled: true}
		binary.BigEndian.PutUint64(t.ID[8:], r.next())
	}
	binary.BigEndian.PutUint64(t.Span[:], r.next())
	return &recording{r, Span{Step: s, Trace: t}}
}

func (r *Recorder) next() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	return r.last
}

// Spans returns the spans so far, in the order of their ends.
func (r *Recorder) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Caller is the span of a request of the test's own, number n.
func Caller(n byte) wire.Trace {
	return wire.Trace{ID: [16]byte{2, n}, Span: [8]byte{2, n}, Sampled: true}
}

// Close does nothing: the spans stay.
func (r *Recorder) Close(context.Context) error { return nil }

type recording struct {
	to   *Recorder
	span Span
}

func (r *recording) Trace() wire.Trace { return r.span.Trace }

func (r *recording) End(failure string, figures ...wire.Figure) {
	if !r.span.Trace.Sampled {
		return
	}
	r.span.Failure, r.span.Figures = failure, figures
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	r.to.spans = append(r.to.spans, r.span)
}
