package coverage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// An explanation is a line of the list, for a block that no test covers:
//
//	internal/api queue.wait: if w.place == nil { return nil } | sometimes | the request is admitted in the same moment
//
// It names the package, the function and the code; queue.wait#2 means the second block of queue.wait
// with that code. A block whose coverage depends on chance is covered sometimes; any other never.
type explanation struct {
	line             int
	name, often, why string
}

const (
	never     = "never"
	sometimes = "sometimes"
)

// readExplained omits empty lines and lines that begin with #, which are for people.
func readExplained(name string) ([]explanation, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var all []explanation
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		x, err := parseExplanation(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		x.line = i + 1
		all = append(all, x)
	}
	return all, nil
}

// parseExplanation splits from the right: Go may have " | " itself.
func parseExplanation(line string) (x explanation, err error) {
	rest, why, _ := cutLast(line)
	name, often, ok := cutLast(rest)
	if !ok || why == "" || often != never && often != sometimes {
		return x, fmt.Errorf("want PACKAGE [FUNC[#N]]: code | never or sometimes | why, got %q", line)
	}
	return explanation{name: name, often: often, why: why}, nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndex(s, " | ")
	if i < 0 {
		return s, "", false
	}
	return strings.TrimSpace(s[:i]), strings.TrimSpace(s[i+3:]), true
}

// A result compares a list with the blocks of a profile.
type result struct {
	statements, covered int // without error texts; code that is covered by chance counts as not covered
	problems            []string
}

func (r *result) share() float64 { return 100 * float64(r.covered) / float64(max(r.statements, 1)) }

func (r *result) add(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// compare finds the blocks without an explanation, and the explanations without a block that needs one.
func compare(blocks []*block, list []explanation) *result {
	r := &result{}
	byName := map[string]*explanation{}
	for i := range list {
		x := &list[i]
		if byName[x.name] != nil {
			r.add("line %d: %s was explained before", x.line, x.name)
		}
		byName[x.name] = x
	}
	for _, b := range blocks {
		x := byName[b.name()]
		delete(byName, b.name())
		r.judge(b, x)
	}
	for i := range list {
		if x := &list[i]; byName[x.name] == x {
			r.add("line %d: there is no code %s", x.line, x.name)
		}
	}
	return r
}

// judge counts a block; x is its explanation or nil.
func (r *result) judge(b *block, x *explanation) {
	at := b.file + ":" + strconv.Itoa(b.from.line)
	if b.errorText {
		if x != nil {
			r.add("line %d: an error text needs no explanation: %s", x.line, x.name)
		}
		return
	}
	r.statements += b.statements
	switch {
	case x == nil && !b.covered:
		r.add("%s: no test covers it; add one, or a line: %s | never | why", at, b.name())
	case x == nil:
		r.covered += b.statements
	case x.often == never && b.covered:
		r.add("%s: a test covers it; delete line %d: %s", at, x.line, x.name)
	}
}
