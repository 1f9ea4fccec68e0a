package journalfile

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/store"
)

// A block ends with the entry that reaches one of these. They bound the memory of an export, and are the size of
// a row group in a format that has them.
const (
	blockEntries = 100_000
	blockBytes   = 16 << 20 // of counters and senders
)

// An Export writes the entries of a period in the order of their keys. The period must be settled.
type Export struct {
	Client   *client.Client
	Server   string        // the address of Client: another one may have another journal
	Timeout  time.Duration // of a page, repeats included
	Period   Period
	Format   backend.JournalFormat
	Version  string // of the program: another one may write other bytes
	Progress transfer.StartProgress

	blockEntries int // in tests; 0 for the constant
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

// write writes the blocks that out does not have, and the tail.
func (x *Export) write(ctx context.Context, out *output) error {
	total := x.Period.To.Sub(x.Period.From).Microseconds()
	progress := x.Progress("exporting", "entries", total)
	defer progress.Stop()
	blocks := cutter{pages: newPages(x, out.after, progress.Wait), most: cmp.Or(x.blockEntries, blockEntries)}
	at := x.Period.From
	for {
		entries, err := blocks.next(ctx)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			break
		}
		if err := out.add(&x.Format, entries); err != nil {
			return err
		}
		last := entries[len(entries)-1].Time
		progress.Add(last.Sub(at).Microseconds(), int64(len(entries)))
		at = last
	}
	if x.Format.Tail == nil {
		return nil
	}
	tail, err := x.Format.Tail(out.notes)
	if err != nil {
		return err
	}
	return out.write(tail)
}

// A cutter cuts pages into blocks.
type cutter struct {
	pages   *pages
	most    int
	left    []client.JournalEntry // of the last page
	entries []client.JournalEntry
}

// next returns the next block, which the call after it overwrites. It is empty at the end.
func (c *cutter) next(ctx context.Context) (_ []client.JournalEntry, err error) {
	clear(c.entries) // so that the strings of the block before can go
	c.entries = c.entries[:0]
	for size := 0; ; {
		for i := range c.left {
			e := &c.left[i]
			c.entries = append(c.entries, *e)
			if size += len(e.Counter) + len(e.Sender); len(c.entries) == c.most || size >= blockBytes {
				c.left = c.left[i+1:]
				return c.entries, nil
			}
		}
		if c.left = nil; c.pages.ended {
			return c.entries, nil
		}
		if c.left, err = c.pages.next(ctx); err != nil {
			return nil, err
		}
	}
}

// An output is a file under way.
type output struct {
	w     io.Writer
	size  int64
	notes [][]byte
	after store.JournalPlace // the last entry of the last block

	entries, resumed int64
	buffer           []byte
	remember         func(block) error // nil for a stream
	files                              // of a file
}

func (o *output) result() Exported { return Exported{o.entries, o.size, o.resumed} }

func (o *output) write(data []byte) error {
	n, err := o.w.Write(data)
	o.size += int64(n)
	return err
}

// add writes a block, and remembers it.
func (o *output) add(format *backend.JournalFormat, entries []client.JournalEntry) error {
	data, note, err := format.Block(o.buffer[:0], o.size, entries)
	if err != nil {
		return fmt.Errorf("writing %s: %w", format.Name, err)
	}
	o.buffer = data
	if err := o.write(data); err != nil {
		return err
	}
	o.entries += int64(len(entries))
	o.notes = append(o.notes, note)
	if o.remember == nil {
		return nil
	}
	return o.remember(block{Bytes: o.size, Entries: o.entries, After: entries[len(entries)-1].Key, Note: note})
}
