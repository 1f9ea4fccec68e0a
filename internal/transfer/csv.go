package transfer

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countmill/countmill"
)

// columns has the positions of a row's fields in CSV; -1 for a missing one.
type columns struct {
	n                        int
	counter, delta, id, time int
}

const wantHeader = "counter and delta, perhaps id and time"

// parseHeader reads the first line of a CSV file.
func parseHeader(text string) (*columns, error) {
	names, err := fields(text)
	if err != nil {
		return nil, fmt.Errorf("the header %w", err)
	}
	at := map[string]int{"counter": -1, "delta": -1, "id": -1, "time": -1}
	for i, name := range names {
		before, known := at[name]
		switch {
		case !known:
			return nil, fmt.Errorf("%q is not the name of a column; the first line names them: %s", shorten(name), wantHeader)
		case before >= 0:
			return nil, fmt.Errorf("the header names the column %s twice", name)
		}
		at[name] = i
	}
	if at["counter"] < 0 || at["delta"] < 0 {
		return nil, fmt.Errorf("the header must name the columns %s, got %q", wantHeader, shorten(text))
	}
	return &columns{len(names), at["counter"], at["delta"], at["id"], at["time"]}, nil
}

// increment reads a line of CSV.
func (c *columns) increment(text string) (inc countmill.Increment, err error) {
	row, err := fields(text)
	if err != nil {
		return inc, err
	}
	if len(row) != c.n {
		return inc, fmt.Errorf("has %d fields, the header has %d", len(row), c.n)
	}
	inc.Counter = row[c.counter]
	if err := countmill.CheckCounter(inc.Counter); err != nil {
		return inc, err
	}
	if inc.Delta, err = parseDelta(row[c.delta]); err != nil {
		return inc, err
	}
	if c.id >= 0 && row[c.id] != "" {
		inc.ID = row[c.id]
		if err := countmill.CheckID("id", inc.ID); err != nil {
			return inc, err
		}
	}
	if c.time >= 0 && row[c.time] != "" {
		// The JSON reader decides whether a time is valid.
		timed, err := decode([]byte(`{"counter":"x","time":` + strconv.Quote(row[c.time]) + `}`))
		if err != nil {
			return inc, &countmill.FieldError{Field: "time", Problem: "is not a time", Limit: "as in RFC 3339, such as 2006-01-02T15:04:05Z"}
		}
		inc.Time = timed.Time
	}
	return inc, nil
}

// parseDelta reads -?[0-9]+.
func parseDelta(text string) (int64, error) {
	delta, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		delta = countmill.MaxDelta + 1 // out of range, which the check reports
	case err != nil || text[0] == '+':
		return 0, &countmill.FieldError{Field: "delta", Problem: fmt.Sprintf("%q is not an integer", shorten(text)), Limit: "-9007199254740991 to 9007199254740991, not 0"}
	}
	return delta, countmill.CheckDelta(delta)
}

// fields splits one line.
func fields(text string) ([]string, error) {
	if !strings.Contains(text, `"`) {
		return strings.Split(text, ","), nil
	}
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
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
