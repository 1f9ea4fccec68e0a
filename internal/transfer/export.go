package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
)

// maxPage is the most counters of one GET /v1/counters.
const maxPage = 1000

// An Export writes totals as rows that an import takes, page by page.
type Export struct {
	Client   *client.Client
	Timeout  time.Duration // of a page, repeats included
	Prefix   string
	Format   Format
	Progress StartProgress
}

// Exported is the result of an export.
type Exported struct {
	Counters, Rows, Zero int
	Overflowed           []string // counters without rows, as their totals do not fit 64 bits
	First, Last          string   // as_of: they sort as they are
}

// Run writes the totals.
func (x Export) Run(ctx context.Context, out io.Writer) (*Exported, error) {
	e := &exporter{Export: x, query: url.Values{"limit": {fmt.Sprint(maxPage)}}, progress: x.Progress("exporting", "counters", 0)}
	if x.Prefix != "" {
		e.query.Set("prefix", x.Prefix)
	}
	err := e.write(ctx, out)
	e.progress.Stop()
	return &e.done, err
}

// An exporter is an export under way.
type exporter struct {
	Export
	query    url.Values
	progress Progress
	done     Exported
}

func (e *exporter) write(ctx context.Context, out io.Writer) error {
	w := NewWriter(out, e.Format)
	for {
		page, err := e.page(ctx)
		if err != nil {
			return err
		}
		if err := e.add(w, page); err != nil {
			return err
		}
		if page.Next == "" {
			return w.Flush()
		}
		e.query.Set("page_token", page.Next)
	}
}

// page reads a page, again while that may help.
func (e *exporter) page(ctx context.Context) (*client.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	answer, err := e.Client.Do(ctx, client.Request{
		Path: "/v1/counters", Query: e.query, OnRetry: func(err error) { e.progress.Wait(err.Error()) },
	})
	if err != nil {
		return nil, err
	}
	page := &client.Page{}
	if err := json.Unmarshal(answer, page); err != nil || page.Totals == nil {
		return nil, errors.New("the server answered with something else than a page of counters; is that a countmill?")
	}
	return page, nil
}

func (e *exporter) add(w *Writer, page *client.Page) error {
	for _, t := range page.Totals {
		n, err := w.Total(t.Counter, t.Total)
		if err != nil {
			return err
		}
		if e.done.Rows += n; n == 0 {
			e.done.Zero++
		} else {
			e.done.Counters++
		}
		at := httpserver.FormatTime(t.AsOf)
		e.done.First, e.done.Last = min(cmp.Or(e.done.First, at), at), max(e.done.Last, at)
	}
	e.done.Overflowed = append(e.done.Overflowed, page.Overflowed...)
	e.progress.Add(0, int64(len(page.Totals)))
	return nil
}
