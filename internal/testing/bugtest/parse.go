package bugtest

import (
	"errors"
	"fmt"
	"strings"
)

// An edit is one change of a function.
type edit struct {
	pkg, fn  string
	at       string // words of a comment; "" for the whole body
	do       string
	old, new string // expressions of a change; new is the code of the others, and an import's path
}

// wrap says which edit an error comes from.
func (e *edit) wrap(err error) error {
	if e.at == "" {
		return fmt.Errorf("in %s %s: %s: %w", e.pkg, e.fn, e.do, err)
	}
	return fmt.Errorf("in %s %s: at %q: %s: %w", e.pkg, e.fn, e.at, e.do, err)
}

func parse(text string) (b Bug, err error) {
	var open edit // in and at of the edits to come
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if err := b.parseLine(&open, line); err != nil {
			return b, fmt.Errorf("line %d: %w: %q", n+1, err, line)
		}
	}
	if b.What == "" || len(b.edits) == 0 {
		return b, errors.New("it does not say what is wrong, or changes nothing")
	}
	for _, e := range b.edits {
		if code := strings.TrimSpace(e.new) != ""; code != (e.do != "delete") {
			return b, e.wrap(errors.New("it has no code, or code that it cannot have"))
		}
	}
	return b, nil
}

func (b *Bug) parseLine(open *edit, line string) error {
	if what, ok := strings.CutPrefix(line, "# "); ok && b.What == "" {
		b.What = what
		return nil
	}
	if line == "" || line[0] == '\t' {
		return b.addCode(line)
	}
	key, value, ok := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	e := *open
	switch e.do = key; {
	case !ok:
		return errors.New("it is out of place")
	case key == "found" && value != "" && b.Found == "":
		b.Found = value
		return nil
	case key == "in":
		*open = edit{}
		if open.pkg, open.fn, ok = strings.Cut(value, " "); !ok {
			return errors.New("want in: PACKAGE NAME")
		}
		return nil
	case open.fn == "":
		return errors.New("no in comes before it")
	case key == "at" && value != "":
		open.at = value
		return nil
	case key == "change":
		if e.old, e.new, ok = strings.Cut(value, " -> "); !ok {
			return errors.New("want change: OLD -> NEW")
		}
	case key == "import" && value != "":
		e.new = value
	case (key == "before" || key == "after" || key == "replace" || key == "delete") && value == "":
	default:
		return errors.New("it is out of place")
	}
	b.edits = append(b.edits, e)
	return nil
}

// addCode adds a line to the code of the last edit. Empty lines are allowed anywhere.
func (b *Bug) addCode(line string) error {
	if line == "" && len(b.edits) == 0 {
		return nil
	}
	if len(b.edits) == 0 {
		return errors.New("it belongs to nothing")
	}
	e := &b.edits[len(b.edits)-1]
	if line != "" && (e.do == "change" || e.do == "import") {
		return errors.New("it belongs to nothing")
	}
	if e.do != "change" && e.do != "import" {
		e.new += line + "\n"
	}
	return nil
}
