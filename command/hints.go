package command

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

// sayMissing says on standard error which counters of an answer with totals do not exist: 0 alone
// does not show a mistyped name.
func (c *call) sayMissing(totals []client.Total) {
	for _, t := range totals {
		c.sayMissingOne(t.Counter, t.Exists)
	}
}

// sayMissingOne says that no counter is named so, unless it exists.
func (c *call) sayMissingOne(name string, exists bool) {
	if exists {
		return
	}
	if group, is := strings.CutPrefix(name, countmill.GroupMark); is {
		fmt.Fprintf(c.stderr, "countmill: no counter is in a group named %q; \"countmill index list\" shows how groups are named\n", cli.Plain(group))
		return
	}
	fmt.Fprintf(c.stderr, "countmill: no counter is named %q\n", cli.Plain(name))
}

// Names may have a *, so a command that takes a PREFIX takes a * as it is. It then finds nothing where a pattern was meant, which
// looks like a good result. So each of these commands reports that nothing matched.

// noMatch says that no name begins with the prefix.
func noMatch(prefix string) string {
	if prefix == "" {
		return "there are no counters"
	}
	return fmt.Sprintf("no name begins with %q%s", prefix, withoutStar(prefix))
}

// withoutStar ends an error about a prefix that looks like a pattern.
func withoutStar(prefix string) string {
	if rest, ok := strings.CutSuffix(prefix, "*"); ok {
		return fmt.Sprintf("; a PREFIX has no * behind it: write %q", rest)
	}
	return ""
}

// warnNoMatch warns that a prefix has matched nothing. It does not warn if there was no prefix.
func (c *call) warnNoMatch(prefix string) {
	if prefix == "" {
		return
	}
	names := "no name"
	if c.Given("token") || c.Given("token-file") { // the server shows no others
		names += " that this token may read"
	}
	fmt.Fprintf(c.stderr, "countmill: %s begins with %q%s\n", names, prefix, withoutStar(prefix))
}

// warnStars warns of prefixes that look like patterns, for commands that match them later.
func (c *call) warnStars(prefixes ...string) {
	for _, p := range prefixes {
		if rest, ok := strings.CutSuffix(p, "*"); ok {
			fmt.Fprintf(c.stderr, "countmill: the prefix %q is of names that have this *; for all that begin with %q leave the * out\n", p, rest)
		}
	}
}

// warnInnerStar warns of a pattern with a * that is not at its end: it is a character of names.
func (c *call) warnInnerStar(pattern string) {
	if strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
		fmt.Fprintf(c.stderr, "countmill: %q is of names that have this *: only a * at the end of a pattern means any characters\n", pattern)
	}
}

// A renamed error has the names that the caller used.
type renamed struct {
	error
	text string
}

func (e *renamed) Error() string { return e.text }
func (e *renamed) Unwrap() error { return e.error }

// explain adds the flag that helps to an error of a call, and writes errors with the names that the caller used.
func explain(v cli.Verb, cmd cli.Command, err error) error {
	if c, ok := v.(interface{ remedied(err error) error }); ok {
		err = c.remedied(err)
	}
	if c, ok := v.(interface {
		asTyped(err error, args string) error
	}); ok {
		err = c.asTyped(err, cmd.Args)
	}
	return err
}

// asTyped writes an error with the names that the caller used. Parts of the program name a flag where the caller set
// its variable, or the other flag of a pair. The server names the fields of its API. args is how the arguments of the
// command are written.
func (c *call) asTyped(err error, args string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if e, ok := errors.AsType[*client.Error](err); ok && e.Field != "" && strings.HasPrefix(e.Detail, e.Field+" ") {
		text = strings.Replace(text, e.Detail, c.argument(e.Field, args)+strings.TrimPrefix(e.Detail, e.Field), 1)
	}
	text = flagAtStart.ReplaceAllStringFunc(text, func(found string) string {
		start, name, _ := strings.Cut(strings.TrimSuffix(found, ":"), "--")
		return start + c.Typed(name) + ":"
	})
	if text == err.Error() {
		return err
	}
	return &renamed{err, text}
}

// flagAtStart is a flag at the beginning of an error, or of one of several.
var flagAtStart = regexp.MustCompile(`(^|; |\n)--[a-z-]+:`)

// argument is a field of the API as the command line has it: a flag, or an argument.
func (c *call) argument(field, args string) string {
	name := strings.ReplaceAll(field, "_", "-")
	if c.Has(name) {
		return cli.Dashed(name)
	}
	if slices.Contains(strings.Fields(args), strings.ToUpper(name)) {
		return strings.ToUpper(name)
	}
	return field
}
