package transfer

import (
	"bufio"
	"encoding/csv"
	"io"
	"strconv"

	"github.com/countmill/countmill"
)

// A Writer writes totals as rows whose increments add up to them. Call Flush at the end.
type Writer struct {
	buf *bufio.Writer
	csv *csv.Writer // nil for NDJSON
}

// NewWriter writes to w. It writes the header of CSV at once.
func NewWriter(w io.Writer, format Format) *Writer {
	out := &Writer{buf: bufio.NewWriterSize(w, 64<<10)}
	if format == CSV {
		out.csv = csv.NewWriter(out.buf)
		_ = out.csv.Write([]string{"counter", "delta"}) // Flush returns the first error of all writes
	}
	return out
}

// Total writes a counter's total and returns the number of rows. A total beyond one increment's limit
// takes several rows; 0 takes none.
func (w *Writer) Total(counter string, total int64) (int, error) {
	n := 0
	for ; total != 0; n++ {
		delta := min(max(total, -countmill.MaxDelta), countmill.MaxDelta)
		total -= delta
		if err := w.Increment(countmill.Increment{Counter: counter, Delta: delta}); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Increment writes one row; in CSV, counter and delta only.
func (w *Writer) Increment(inc countmill.Increment) error {
	if w.csv != nil {
		return w.csv.Write([]string{inc.Counter, strconv.FormatInt(inc.Delta, 10)})
	}
	_, err := w.buf.Write(appendRow(w.buf.AvailableBuffer(), inc))
	return err
}

// Flush writes buffered rows, and returns the first error.
func (w *Writer) Flush() error {
	if w.csv != nil {
		w.csv.Flush()
		if err := w.csv.Error(); err != nil {
			return err
		}
	}
	return w.buf.Flush()
}
