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
	Counter *Template      // of access logs
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
		{"columns", f.Columns.String()}, {"counter", f.Counter.String()}, {"prefix", f.Prefix}, {"tz", f.zone().String()},
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

// A Template makes the name of a counter of the variables of a row, such as page:{path}.
type Template struct {
	text string
	vars []string // in their order
}

// logVariables are those of a line of an access log.
var logVariables = []string{"host", "method", "path", "status"}

// ParseTemplate reads page:{path}.
func ParseTemplate(text string) (*Template, error) {
	t := &Template{text: text}
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed || !slices.Contains(logVariables, name) {
			return nil, fmt.Errorf("must be like page:{path}, with variables of %s, got %q", strings.Join(logVariables, ", "), text)
		}
		t.vars, rest = append(t.vars, name), after
	}
	if len(t.vars) == 0 {
		return nil, fmt.Errorf("must have a variable, such as page:{path}, got %q", text)
	}
	return t, nil
}

// String is the template as ParseTemplate reads it; empty for nil.
func (t *Template) String() string {
	if t == nil {
		return ""
	}
	return t.text
}

// name replaces the variables by their values.
func (t *Template) name(value map[string]string) string {
	var pairs []string
	for _, v := range t.vars {
		pairs = append(pairs, "{"+v+"}", value[v])
	}
	return strings.NewReplacer(pairs...).Replace(t.text)
}
