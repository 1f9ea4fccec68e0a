package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countmill/countmill"
)

// A template is a pattern of Index: texts[0], variables[0], texts[1] and so on. Only the last text can
// be empty, beside the first.
type template struct {
	texts, variables []string
	any              bool // * at the end
}

// MaxVariables is the most variables of a pattern.
const MaxVariables = 8

func parseTemplate(field, pattern string, wild bool) (*template, error) {
	wrong := func(problem string) (*template, error) {
		limit := "text and variables such as {site}, with text between two variables"
		if wild {
			limit += ", and * only at the end"
		}
		return nil, &countmill.FieldError{Field: field, Problem: problem, Limit: limit}
	}
	t := new(template)
	text := pattern
	if wild {
		text, t.any = strings.CutSuffix(text, "*")
	}
	for {
		before, rest, opened := strings.Cut(text, "{")
		if strings.ContainsAny(before, "*}") {
			return wrong("has a * or } out of place")
		}
		if before == "" && len(t.variables) > 0 && (opened || t.any) {
			return wrong("has a variable without text after it")
		}
		if t.texts = append(t.texts, before); !opened {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !isIndexName(name) || slices.Contains(t.variables, name) && wild {
			return wrong("has a variable without a name of its own")
		}
		t.variables, text = append(t.variables, name), after
	}
	switch {
	case len(t.variables) > MaxVariables:
		return wrong(fmt.Sprintf("has more than %d variables", MaxVariables))
	case countmill.CheckName("x"+pattern+"x") != nil:
		return wrong("is longer than 498 bytes, or no valid UTF-8")
	}
	return t, nil
}

// values finds the variables in a counter's name. It reports false for a name of another form, and for a
// group: its counters have the same increments.
func (t *template) values(name string, values *[MaxVariables]string) bool {
	rest, ok := strings.CutPrefix(name, t.texts[0])
	if !ok || countmill.IsGroup(name) {
		return false
	}
	for i, text := range t.texts[1:] {
		end := len(rest) // the last variable takes the rest
		if text != "" {
			if rest == "" {
				return false
			}
			at := strings.Index(rest[1:], text)
			if at < 0 {
				return false
			}
			end = 1 + at
		}
		if end == 0 {
			return false
		}
		values[i], rest = rest[:end], rest[end+len(text):]
	}
	return rest == "" || t.any
}
