package command

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

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
