package transfer

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// separators may be between the columns of a header. They are tried in this order.
var separators = []string{",", ";", "\t"}

// columns has the positions of a row's fields in CSV; -1 for a missing one.
type columns struct {
	separator                string
	n                        int
	counter, delta, id, time int
	zone                     *time.Location
}

const wantHeader = "counter and delta, perhaps id and time"

// parseHeader reads the first line of a CSV file, with the first separator that finds all columns in it. The error is
// about the separator that makes the most of it.
func parseHeader(text string, form *Form) (*columns, error) {
	var wrong error
	most := 0
	for _, separator := range separators {
		names, err := fields(text, separator)
		if err != nil {
			return nil, fmt.Errorf("the header %w", err)
		}
		c, err := form.columns(names)
		if err == nil {
			c.separator, c.zone = separator, form.zone()
			return c, nil
		}
		if len(names) > most {
			wrong, most = err, len(names)
		}
	}
	return nil, wrong
}

// columns finds the columns of a header. Without --columns it must have no other ones.
func (f *Form) columns(names []string) (*columns, error) {
	at := make(map[string]int)
	for _, field := range csvFields {
		column := field
		if at[field] = -1; f.Columns != nil {
			if column = f.Columns[field]; column == "" {
				continue
			}
		}
		for i, name := range names {
			if !sameColumn(name, column) {
				continue
			}
			if at[field] >= 0 {
				return nil, fmt.Errorf("the header names the column %s twice", column)
			}
			at[field] = i
		}
		if at[field] < 0 && f.Columns != nil {
			return nil, fmt.Errorf("the header has no column %q, got %s", column, shorten(fmt.Sprintf("%q", names)))
		}
	}
	if f.Columns == nil {
		for i, name := range names {
			if !slices.Contains([]int{at["counter"], at["delta"], at["id"], at["time"]}, i) {
				return nil, fmt.Errorf("%q is not the name of a column; the first line names them: %s. --columns counter=NAME,delta=NAME takes them from columns with other names", shorten(name), wantHeader)
			}
		}
		if at["counter"] < 0 || at["delta"] < 0 {
			return nil, fmt.Errorf("the header must name the columns %s, got %s", wantHeader, shorten(fmt.Sprintf("%q", names)))
		}
	}
	return &columns{n: len(names), counter: at["counter"], delta: at["delta"], id: at["id"], time: at["time"]}, nil
}

// sameColumn compares without regard to case, and to spaces around a name.
func sameColumn(name, column string) bool {
	return strings.EqualFold(strings.TrimSpace(name), column)
}

// increment reads a line of CSV.
func (c *columns) increment(text string) (inc countmill.Increment, err error) {
	row, err := fields(text, c.separator)
	if err != nil {
		return inc, err
	}
	if len(row) != c.n {
		return inc, fmt.Errorf("has %d fields, the header has %d", len(row), c.n)
	}
	inc = countmill.Increment{Counter: row[c.counter], Delta: 1}
	if inc.Counter == "" {
		return inc, countmill.CheckCounter("")
	}
	if c.delta >= 0 {
		if inc.Delta, err = parseDelta(row[c.delta]); err != nil {
			return inc, err
		}
	}
	if c.id >= 0 && row[c.id] != "" {
		inc.ID = row[c.id]
		if err := countmill.CheckID("id", inc.ID); err != nil {
			return inc, err
		}
	}
	if c.time >= 0 && row[c.time] != "" {
		inc.Time, err = parseTime(row[c.time], c.zone)
	}
	return inc, err
}

// fields splits one line.
func fields(text, separator string) ([]string, error) {
	if !strings.Contains(text, `"`) {
		return strings.Split(text, separator), nil
	}
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
	r.Comma = rune(separator[0])
	row, err := r.Read()
	var syntax *csv.ParseError
	if errors.As(err, &syntax) {
		err = fmt.Errorf("is not valid CSV: %w", syntax.Err)
	}
	return slices.Clip(row), err
}

// shorten bounds the text that an error repeats.
func shorten(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
