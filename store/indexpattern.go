package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	wrong := func(problem, limit string) (*template, error) {
		return nil, &countmill.FieldError{Field: field, Problem: problem, Limit: limit}
	}
	form := "text and variables such as {site}, with text between two variables"
	if wild {
		form += ", and * only at the end"
	}
	t := new(template)
	text := pattern
	if wild {
		text, t.any = strings.CutSuffix(text, "*")
	}
	for {
		before, rest, opened := strings.Cut(text, "{")
		if strings.ContainsAny(before, "*}") {
			return wrong("has a * or } out of place", form)
		}
		if before == "" && len(t.variables) > 0 && (opened || t.any) {
			return wrong("has a variable without text after it", form)
		}
		if t.texts = append(t.texts, before); !opened {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		switch {
		case !closed:
			return wrong("has a { without a }", form)
		case checkIndexName(name) != nil:
			return wrong("has a variable named "+strconv.Quote(name[:min(len(name), maxIndexName)]), "variables of 1 to 40 of a-z, 0-9, - and _, such as {site}")
		case wild && slices.Contains(t.variables, name):
			return wrong("has the variable {"+name+"} twice", "each variable once")
		}
		t.variables, text = append(t.variables, name), after
	}
	if n := len(t.variables); n > MaxVariables {
		return wrong(fmt.Sprintf("has %d variables", n), fmt.Sprintf("%d variables", MaxVariables))
	}
	return t, checkText(field, pattern)
}

// checkText reports whether a name can have the pattern's text. Its two extra bytes keep it away from the ends of the name, which have rules of their own.
func checkText(field, pattern string) error {
	err := countmill.CheckName("x" + pattern + "x")
	if wrong, ok := errors.AsType[*countmill.FieldError](err); ok {
		if wrong.Field = field; len(pattern) > maxPattern {
			wrong.Limit = fmt.Sprintf("%d bytes", maxPattern)
		}
	}
	return err
}

const maxPattern = countmill.MaxCounterName - 2

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
