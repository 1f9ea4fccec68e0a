package api

import (
	"bytes"
	"io"
	"strconv"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// chunkSize is how much of an event is written at once. It bounds the memory of a watcher:
// an event of 1,000 counters may have over a MiB.
const chunkSize = 16 << 10

// A chunkWriter writes to w in chunks.
type chunkWriter struct {
	w   io.Writer
	buf []byte
	err error
}

// flush writes the buffer if it has at least so many bytes. After an error it discards it.
func (p *chunkWriter) flush(least int) {
	if len(p.buf) < least {
		return
	}
	if p.err == nil {
		_, p.err = p.w.Write(p.buf)
	}
	p.buf = p.buf[:0]
}

// write writes the event that brings a client from one snapshot to a later one. ending is that of the
// view.
func (v view) write(w io.Writer, was, b *snapshot, ending []byte) error {
	p := chunkWriter{w: w, buf: append(make([]byte, 0, 1024), "event: totals\ndata: {\"totals\":"...)}
	open := byte('[')
	for r := range v.news(was, b) {
		if r == nil {
			continue
		}
		p.buf = append(v.appendRow(append(p.buf, open, '{'), r), '}')
		open = ','
		p.flush(chunkSize)
	}
	if open == '[' {
		p.buf = append(p.buf, open)
	}
	p.buf = append(p.buf, ']')
	removed := `,"removed":[`
	for r, name := range v.news(was, b) {
		if r != nil {
			continue
		}
		p.buf = appendString(append(p.buf, removed...), name)
		removed = ","
		p.flush(chunkSize)
	}
	if removed == "," {
		p.buf = append(p.buf, ']')
	}
	p.buf = append(append(p.buf, ending...), "\n\n"...)
	p.flush(0)
	return p.err
}

func (v view) appendRow(b []byte, r *row) []byte {
	b = appendTotal(b, &r.Total, v.quoted)
	if !v.rates {
		return b
	}
	b = append(b, `,"rate":`...)
	if !r.rated {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, r.rate, 'f', -1, 64)
}

// ending is the end of an event: everything that is not about a single counter.
func (v view) ending(b *snapshot) []byte {
	var text []byte
	if v.truncated(b) {
		text = append(text, `,"truncated":true`...)
	}
	text = appendSeconds(append(text, `,"lag":`...), lagOf(b.pipeline))
	if v.limited {
		return append(text, `,"pipeline":null}`...)
	}
	text = append(text, `,"pipeline":`...)
	return append(append(text, encode(paceOf(b.pipeline))...), '}')
}

// paceOf is nil until the aggregators have been seen twice.
func paceOf(p reader.Pipeline) *client.Rates {
	if !p.RatesKnown {
		return nil
	}
	return &client.Rates{EntriesPerSecond: p.Entries, CommitsPerSecond: p.Commits}
}

// encode writes JSON on one line, as an event's data must be.
func encode(v any) []byte { return bytes.TrimSuffix(httpserver.AppendJSON(nil, v), []byte("\n")) }
