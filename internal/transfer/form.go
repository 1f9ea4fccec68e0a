package transfer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Form says how the rows of a file become increments. These depend on the bytes of the file and on its
// form, and on nothing else: a repeat of an import must have the same form.
type Form struct {
	Format  Format
	Columns Columns        // of CSV; nil if its columns have the names of the fields
	Prefix  string         // before each counter
	Zone    *time.Location // of times that name none; nil is UTC
	Series  bool           // each row counts in series at its own time, which may be years ago
}

// zone is the zone of times that name none.
func (f *Form) zone() *time.Location {
	if f.Zone == nil {
		return time.UTC
	}
	return f.Zone
}

// String is the form as flags. Different forms have different strings.
func (f *Form) String() string {
	text := "--format " + string(f.Format)
	for _, flag := range []struct{ name, value string }{
		{"columns", f.Columns.String()}, {"prefix", f.Prefix}, {"tz", f.zone().String()},
	} {
		if flag.value != "" && flag.value != "UTC" {
			text += fmt.Sprintf(" --%s %q", flag.name, flag.value)
		}
	}
	if f.Series {
		text += " --series"
	}
	return text
}

// Columns are the names of a file's columns, by field: counter, delta, id or time.
type Columns map[string]string

// csvFields are the fields of a row of CSV.
var csvFields = []string{"counter", "delta", "id", "time"}

// ParseColumns reads counter=path,delta=hits.
func ParseColumns(text string) (Columns, error) {
	c := make(Columns)
	for part := range strings.SplitSeq(text, ",") {
		field, column, _ := strings.Cut(part, "=")
		switch {
		case !slices.Contains(csvFields, field) || column == "":
			return nil, fmt.Errorf("must be like counter=path,delta=hits,time=date, of counter, delta, id and time, got %q", part)
		case c[field] != "":
			return nil, fmt.Errorf("names the column of %s twice", field)
		}
		c[field] = column
	}
	if c["counter"] == "" {
		return nil, fmt.Errorf("must name the column of the counter, such as counter=path")
	}
	return c, nil
}

// String is the columns as ParseColumns reads them, in one order.
func (c Columns) String() string {
	var parts []string
	for _, field := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, field+"="+c[field])
	}
	return strings.Join(parts, ",")
}
