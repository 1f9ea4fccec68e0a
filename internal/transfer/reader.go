package transfer

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// maxLine is the longest row, in bytes. The longest valid one, with every character escaped, has a
// tenth of it.
const maxLine = 64 << 10

// A Row is one line of a file.
type Row struct {
	Line int    // from 1
	Text string // without its end; cut at maxLine
	Size int    // in the file, with the line's end
	Inc  countmill.Increment
	Err  error // why it cannot be counted; nil for a good row
}

// A Reader reads the rows of a file, one by one.
type Reader struct {
	lines *bufio.Reader
	form  Form
	rows  decoder
	line  int
	check CheckRow
}

// A decoder reads rows of one format.
type decoder interface {
	increment(line string) (countmill.Increment, error)
}

// A CheckRow returns why a readable row cannot be counted, nil if it can. A row without a time has the zero time.
type CheckRow func(countmill.Increment) error

// mostMargin is how long rows of the oldest accepted times can be sent, with the longest windows.
const mostMargin = time.Hour

// Within refuses rows that would be older than window soon after began: the server takes no request with one.
func Within(began time.Time, window time.Duration) CheckRow {
	window -= min(mostMargin, window/8)
	return func(inc countmill.Increment) error {
		if inc.Time.IsZero() {
			return nil
		}
		err := countmill.CheckTime(inc.Time, began, window)
		if err != nil && inc.Time.Before(began) {
			err = fmt.Errorf("%w: --series counts rows at their own times, and rows without times count now", err)
		}
		return err
	}
}

// NewReader reads r. CSV must have a header. A row that check refuses is bad.
func NewReader(r io.Reader, form Form, check CheckRow) (*Reader, error) {
	d := &Reader{lines: bufio.NewReaderSize(r, maxLine), form: form, check: check}
	if form.Format == NDJSON {
		d.rows = ndjson{}
		return d, nil
	}
	var err error
	d.rows, err = d.header()
	return d, err
}

// header reads the header of CSV. Lines of comments may come before it.
func (d *Reader) header() (*columns, error) {
	for {
		line, _, err := d.next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is empty: a CSV file begins with a line such as counter,delta")
		}
		if err != nil {
			return nil, err
		}
		if text := string(line); text != "#" && !strings.HasPrefix(text, "# ") {
			c, err := parseHeader(text, &d.form)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", d.line, err)
			}
			return c, nil
		}
	}
}

// Next returns the next row, and io.EOF after the last. A bad row is not an error of Next: see Row.Err.
func (d *Reader) Next() (Row, error) {
	text, size, err := d.next()
	if err != nil {
		return Row{}, err
	}
	row := Row{Line: d.line, Text: string(text), Size: size}
	if size > maxLine {
		row.Err = fmt.Errorf("is longer than a row can be (limit: %d bytes)", maxLine)
		return row, nil
	}
	if row.Inc, row.Err = d.rows.increment(row.Text); row.Err == nil {
		row.Inc.Counter = d.form.Prefix + row.Inc.Counter
		row.Err = cmp.Or(countmill.CheckCounter(row.Inc.Counter), d.check(row.Inc))
	}
	return row, nil
}

// next returns the next line that is not blank, without its end. It is valid until the next call.
func (d *Reader) next() (text []byte, size int, err error) {
	for {
		text, err := d.lines.ReadSlice('\n')
		size := len(text)
		if errors.Is(err, bufio.ErrBufferFull) { // the beginning is enough to name it
			text = bytes.Clone(text)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			var more []byte
			more, err = d.lines.ReadSlice('\n')
			size += len(more)
		}
		if err != nil && (err != io.EOF || size == 0) {
			return nil, 0, err
		}
		d.line++
		if d.line == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		if len(bytes.TrimSpace(text)) > 0 {
			return text, size, nil
		}
	}
}

// farAhead is the latest readable time. Whether a row is good must not depend on the clock, except
// for its age, which Next checks.
var farAhead = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// ndjson reads objects as the server does.
type ndjson struct{}

func (ndjson) increment(line string) (countmill.Increment, error) { return decode([]byte(line)) }

// decode reads one JSON object as the server does.
func decode(text []byte) (countmill.Increment, error) {
	incs, err := wire.DecodeJSON(text, wire.JSON, farAhead, math.MaxInt64)
	if err != nil {
		return countmill.Increment{}, err
	}
	if len(incs) != 1 || bytes.TrimSpace(text)[0] == '[' {
		return countmill.Increment{}, errors.New("is an array: NDJSON has one object per line")
	}
	return incs[0], nil
}
