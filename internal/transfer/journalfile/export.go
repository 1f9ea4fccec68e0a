// Package journalfile writes the entries of a period of the journal, over HTTP.
//
// The bytes of an entry come from the entry alone. So every export of a period has the same bytes, however the server
// cuts its pages.
package journalfile

import (
	"context"
	"io"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/transfer"
)

// An Export writes the entries of a period in the order of their keys. The period must be settled.
type Export struct {
	Client   *client.Client
	Timeout  time.Duration // of a page, repeats included
	Period   Period
	Progress transfer.StartProgress
}

// A Period is a part of the journal.
type Period struct {
	From, To time.Time // From <= time < To, in whole microseconds
	// Counters is a counter, a prefix followed by *, or empty for all counters.
	Counters string
}

// Run writes the entries to w as GET /v1/journal has them, one a line, and returns their number.
func (x *Export) Run(ctx context.Context, w io.Writer) (n int64, err error) {
	progress := x.Progress("exporting", "entries", x.Period.To.Sub(x.Period.From).Microseconds())
	defer progress.Stop()
	pages := newPages(x, progress.Wait)
	at := x.Period.From
	var lines []byte
	for !pages.ended {
		entries, err := pages.next(ctx)
		if err != nil {
			return n, err
		}
		if len(entries) == 0 {
			continue
		}
		lines = lines[:0]
		for i := range entries {
			lines = httpserver.AppendJSON(lines, &entries[i])
		}
		if _, err := w.Write(lines); err != nil {
			return n, err
		}
		n += int64(len(entries))
		last := entries[len(entries)-1].Time
		progress.Add(last.Sub(at).Microseconds(), int64(len(entries)))
		at = last
	}
	return n, nil
}
