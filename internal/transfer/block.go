package transfer

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// Cut names the rule by which files are cut into blocks: a block ends before a row that
// would make it hold more than maxRows rows, more than maxBytes of the file, or deltas
// whose magnitudes sum to more than maxSum. It is a part of every block's name, as a block
// that was cut by another rule is another block, and never changes without the rule.
const Cut = 1

// The limits of Cut 1. A request of a block has at most half the bytes that a server takes.
const (
	maxRows  = 10_000
	maxBytes = 1 << 20
	maxSum   = wire.MaxSum
)

// A Block is rows that are sent in one request.
type Block struct {
	Number      int // from 0
	First, Last int // lines
	Rows        int // the bad ones as well
	Size        int // bytes of the file
	Good        []countmill.Increment
	Bad         []Row
}

// Blocks cuts the rows of a Reader.
type Blocks struct {
	rows *Reader
	next *Row // read, and part of no block yet
	n    int
}

// NewBlocks cuts what r reads from its first row on.
func NewBlocks(r *Reader) *Blocks { return &Blocks{rows: r} }

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
		// An increment that is refused for its time or its id counts here as well: the
		// cut must not depend on the clock.
		magnitude := max(row.Inc.Delta, -row.Inc.Delta)
		if block.Rows > 0 && (block.Rows == maxRows || block.Size+row.Size > maxBytes || sum+magnitude > maxSum) {
			break
		}
		sum += magnitude
		b.next = nil
		block.add(row, ids)
	}
	b.n++
	return block, nil
}

// A name is what an increment with an id is known by.
type name struct{ counter, id string }

func (b *Blocks) peek() (*Row, error) {
	if b.next == nil {
		row, err := b.rows.Next()
		if err != nil {
			return nil, err
		}
		if row.Inc.Delta > countmill.MaxDelta || row.Inc.Delta < -countmill.MaxDelta {
			row.Inc.Delta = 0 // refused, and by any clock
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
	b.Good = append(b.Good, row.Inc)
}

// Keyed is the body of a request with the block's Idempotency-Key: the increments without
// ids, and how many they are. One of them says the time began unless it is younger: a
// request is as old as its youngest increment, and one that is sent again beyond the
// window is refused and never counted again.
func (b *Block) Keyed(began time.Time) (body []byte, n int) {
	for _, inc := range b.Good {
		if inc.ID != "" {
			continue
		}
		if n == 0 && inc.Time.Before(began) {
			inc.Time = began
		}
		body = appendRow(body, inc)
		n++
	}
	return body, n
}

// Identified is the body of a request without a key: the increments with ids. Each of them
// keeps its time, or has the time began: in a request with a key it would be as young as
// the youngest, and could be counted again where an older marker is forgotten.
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

// WithIDs are the increments with ids, in the order of that body.
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

// appendText appends a JSON string. Names and ids are checked to be UTF-8.
func appendText(b []byte, text string) []byte {
	b, err := jsontext.AppendQuote(b, text)
	if err != nil {
		panic("rows: a name or an id that was checked is no UTF-8: " + strconv.Quote(text))
	}
	return b
}
