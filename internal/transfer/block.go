package transfer

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// Cut is the version of the rules that cut files into blocks and write their requests. A block ends before a row that would give
// it more than maxRows rows, more than maxBytes of the file's text, or deltas whose magnitudes sum to more
// than maxSum. Cut is a part of every block's name, because other rules make other requests. It changes
// only together with the rules.
const Cut = 3

// The limits of Cut 3. A block's request has at most half the bytes that a server accepts.
const (
	maxRows  = 10_000
	maxBytes = 1 << 20
	maxSum   = wire.MaxSum
)

// quarter is the length of the sums that series keep for years. It divides every time zone's hours.
const quarter = 15 * time.Minute

// A Block is rows that are sent in one request.
type Block struct {
	Number      int // from 0
	First, Last int // lines
	Rows        int // including the bad ones
	Size        int // bytes of the file's text
	// At is the beginning of the quarter hour of all rows, in an import of history; otherwise zero.
	At   time.Time
	Good []countmill.Increment
	Bad  []Row
}

// lines names the lines of the block.
func (b *Block) lines() string {
	if b.First == b.Last {
		return fmt.Sprintf("line %d", b.First)
	}
	return fmt.Sprintf("lines %d to %d", b.First, b.Last)
}

// Blocks cuts the rows of a Reader.
type Blocks struct {
	rows    *Reader
	history bool
	next    *Row // read, but in no block yet
	n       int
}

// NewBlocks cuts the rows of r, from its first row on. A block of history also ends before a row of another
// quarter hour.
func NewBlocks(r *Reader, history bool) *Blocks { return &Blocks{rows: r, history: history} }

// Next returns the next block, and io.EOF after the last.
func (b *Blocks) Next() (*Block, error) {
	block := &Block{Number: b.n}
	ids := make(map[name]int64)
	var sum int64
	for {
		row, err := b.peek()
		if errors.Is(err, io.EOF) && block.Rows > 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		// An increment that is refused because of its time or id counts here too: the cut must not
		// depend on the clock.
		magnitude := max(row.Inc.Delta, -row.Inc.Delta)
		if block.Rows > 0 && (block.Rows == maxRows || block.Size+row.Size > maxBytes || sum+magnitude > maxSum) {
			break
		}
		if at := b.quarterOf(row); block.Rows == 0 {
			block.At = at
		} else if !at.Equal(block.At) {
			break
		}
		sum += magnitude
		b.next = nil
		block.add(row, ids)
	}
	b.n++
	return block, nil
}

// quarterOf is zero for a row without a readable time, which is refused at any time.
func (b *Blocks) quarterOf(row *Row) time.Time {
	if !b.history || row.Inc.Time.IsZero() {
		return time.Time{}
	}
	return row.Inc.Time.Truncate(quarter)
}

// A name identifies an increment with an id.
type name struct{ counter, id string }

func (b *Blocks) peek() (*Row, error) {
	if b.next == nil {
		row, err := b.rows.Next()
		if err != nil {
			return nil, err
		}
		if row.Inc.Delta > countmill.MaxDelta || row.Inc.Delta < -countmill.MaxDelta {
			row.Inc.Delta = 0 // refused at any time
		}
		b.next = &row
	}
	return b.next, nil
}

func (b *Block) add(row *Row, ids map[name]int64) {
	if b.Rows == 0 {
		b.First = row.Line
	}
	b.Last = row.Line
	b.Rows++
	b.Size += row.Size
	if row.Err == nil && row.Inc.ID != "" {
		n := name{row.Inc.Counter, row.Inc.ID}
		if delta, ok := ids[n]; !ok {
			ids[n] = row.Inc.Delta
		} else if delta != row.Inc.Delta {
			row.Err = &countmill.FieldError{Field: "id", Problem: "came shortly before with another delta"}
		}
	}
	if row.Err != nil {
		b.Bad = append(b.Bad, *row)
		return
	}
	inc := row.Inc
	if !b.At.IsZero() {
		inc.Time = time.Time{} // At has it: the deduplication window goes by the import
	}
	b.Good = append(b.Good, inc)
}

// Keyed returns the body of a request with the block's Idempotency-Key, and the number of its
// increments: those without ids. Each keeps its time, and the first without one gets the time began. The
// server remembers a key until the youngest time of its request is beyond the window. So it refuses a
// copy that is sent later, and never counts it again.
func (b *Block) Keyed(began time.Time) (body []byte, n int) {
	timed := false // one increment has the time began
	for _, inc := range b.Good {
		if inc.ID != "" {
			continue
		}
		if inc.Time.IsZero() && !timed {
			inc.Time, timed = began, true
		}
		body = appendRow(body, inc)
		n++
	}
	return body, n
}

// Identified returns the body of a request without a key, and the number of its increments: those with
// ids. Each increment keeps its time, or gets the time began. With a key all would be as young as the
// youngest, and could be counted again after an older marker is forgotten.
func (b *Block) Identified(began time.Time) (body []byte, n int) {
	incs := b.WithIDs()
	for _, inc := range incs {
		if inc.Time.IsZero() {
			inc.Time = began
		}
		body = appendRow(body, inc)
	}
	return body, len(incs)
}

// WithIDs returns the increments with ids, in the order of Identified.
func (b *Block) WithIDs() (incs []countmill.Increment) {
	for _, inc := range b.Good {
		if inc.ID != "" {
			incs = append(incs, inc)
		}
	}
	return incs
}

func appendRow(b []byte, inc countmill.Increment) []byte {
	b = appendText(append(b, `{"counter":`...), inc.Counter)
	b = strconv.AppendInt(append(b, `,"delta":`...), inc.Delta, 10)
	if inc.ID != "" {
		b = appendText(append(b, `,"id":`...), inc.ID)
	}
	if !inc.Time.IsZero() {
		b = append(b, `,"time":"`...)
		b = append(inc.Time.UTC().AppendFormat(b, time.RFC3339Nano), '"')
	}
	return append(b, '}', '\n')
}

// appendText appends a JSON string. Names and ids were checked to be UTF-8.
func appendText(b []byte, text string) []byte {
	b, err := jsontext.AppendQuote(b, text)
	if err != nil {
		panic("rows: a checked name or id is not UTF-8: " + strconv.Quote(text))
	}
	return b
}
