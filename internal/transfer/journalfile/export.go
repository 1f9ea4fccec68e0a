package journalfile

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/store"
)

// rememberedEntries is how many entries an export writes before it remembers its place: a stopped one repeats that many.
const rememberedEntries = 100_000

// An Export writes the entries of a period in the order of their keys. The period must be settled.
type Export struct {
	Client   *client.Client
	Server   string        // the address of Client: another one may have another journal
	Timeout  time.Duration // of a page, repeats included
	Period   Period
	Format   Format
	Version  string // of the program: another one may write other bytes
	Progress transfer.StartProgress

	remembered int64 // in tests, in place of the constant; 0 for that
}

// A Period is a part of the journal.
type Period struct {
	From, To time.Time // From <= time < To, in whole microseconds
	// Counters is a counter, a prefix followed by *, or empty for all counters.
	Counters string
}

// Exported is the result of an export.
type Exported struct {
	Entries int64
	Bytes   int64
	Resumed int64 // of Entries: those of an earlier, stopped export
}

// Stream writes a whole file to w.
func (x *Export) Stream(ctx context.Context, w io.Writer) (Exported, error) {
	out := &output{w: w}
	if err := out.write(x.Format.Head); err != nil {
		return Exported{}, err
	}
	err := x.write(ctx, out)
	return out.result(), err
}

// File writes path. It goes on where an earlier export of the same period was stopped. The error is transfer.ErrHeld
// while another export writes path.
func (x *Export) File(ctx context.Context, path string) (Exported, error) {
	release, err := transfer.Hold(path)
	if err != nil {
		return Exported{}, err
	}
	defer release()
	out, err := x.open(path)
	if err != nil {
		return Exported{}, err
	}
	if err := x.write(ctx, out); err != nil {
		_ = out.close()
		return out.result(), err
	}
	return out.result(), out.finish(path)
}

// write writes the entries that out does not have.
func (x *Export) write(ctx context.Context, out *output) error {
	total := x.Period.To.Sub(x.Period.From).Microseconds()
	progress := x.Progress("exporting", "entries", total)
	defer progress.Stop()
	pages := newPages(x, out.after, progress.Wait)
	at, every := x.Period.From, cmp.Or(x.remembered, rememberedEntries)
	for !pages.ended {
		entries, err := pages.next(ctx)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			continue
		}
		if err := out.add(&x.Format, entries, every); err != nil {
			return err
		}
		last := entries[len(entries)-1].Time
		progress.Add(last.Sub(at).Microseconds(), int64(len(entries)))
		at = last
	}
	return nil
}

// An output is a file under way.
type output struct {
	w     io.Writer
	size  int64
	after store.JournalPlace // the last entry of an earlier, stopped export

	entries, resumed int64
	new              int64 // number of entries that are not remembered
	buffer           []byte
	remember         func(place) error // nil for a stream
	files                              // of a file
}

func (o *output) result() Exported { return Exported{o.entries, o.size, o.resumed} }

func (o *output) write(data []byte) error {
	n, err := o.w.Write(data)
	o.size += int64(n)
	return err
}

// add writes entries, and remembers its place if as many as every are new.
func (o *output) add(format *Format, entries []client.JournalEntry, every int64) error {
	data, err := format.Append(o.buffer[:0], entries)
	if err != nil {
		return fmt.Errorf("writing %s: %w", format.Name, err)
	}
	o.buffer = data
	if err := o.write(data); err != nil {
		return err
	}
	o.entries += int64(len(entries))
	if o.new += int64(len(entries)); o.new < every || o.remember == nil {
		return nil
	}
	o.new = 0
	return o.remember(place{Bytes: o.size, Entries: o.entries, After: entries[len(entries)-1].Key})
}
