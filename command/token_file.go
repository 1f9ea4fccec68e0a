package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/auth"
)

// A tokenRow is a token as "token list --json" writes it.
type tokenRow struct {
	Name     string       `json:"name"`
	ID       string       `json:"id"`
	Line     int          `json:"line"`
	Scopes   []auth.Scope `json:"scopes"`
	Prefixes []string     `json:"prefixes,omitempty"`
	Expires  *time.Time   `json:"expires,omitempty"`
	Expired  bool         `json:"expired,omitempty"`
	Public   bool         `json:"public,omitempty"`

	Increments  int64 `json:"increments_per_second,omitempty"`
	Bytes       int64 `json:"bytes_per_second,omitempty"`
	NewCounters int64 `json:"new_counters_per_hour,omitempty"`
}

func tokenRowOf(e auth.Entry, now time.Time) tokenRow {
	t := e.Token
	row := tokenRow{Name: t.Name, ID: t.ID(), Line: e.Line, Scopes: t.Scopes, Prefixes: t.Prefixes, Public: t.Public, Expired: t.Expired(now),
		Increments: t.Limits.Increments, Bytes: t.Limits.Bytes, NewCounters: t.Limits.NewCounters}
	if !t.Expires.IsZero() {
		row.Expires = &t.Expires
	}
	return row
}

type tokenListVerb struct {
	call
	file string
	json bool
}

func (c *tokenListVerb) Flags() []cli.Flag {
	return append([]cli.Flag{tokensFlag(&c.file)}, cli.In(otherSection, cli.Switch("json", &c.json, "Write one JSON array."))...)
}

func (c *tokenListVerb) Run(context.Context) error {
	text, err := readTokens(c.file)
	if err != nil {
		return err
	}
	rows, wrong := []tokenRow{}, []error(nil)
	for _, e := range auth.Entries(text) {
		if e.Err != nil {
			wrong = append(wrong, fmt.Errorf("%s: line %d: %w", c.file, e.Line, e.Err))
			continue
		}
		rows = append(rows, tokenRowOf(e, time.Now()))
	}
	if c.json {
		err = writeJSON(c.stdout, rows)
	} else {
		err = printTokens(c.stdout, rows)
	}
	return errors.Join(append(wrong, err)...)
}

func readTokens(file string) ([]byte, error) {
	if file == "" {
		return nil, cli.Usagef("--file is missing: name the file of the server's --tokens")
	}
	text, err := auth.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return text, nil
}

func printTokens(out io.Writer, rows []tokenRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tID\tSCOPES\tCOUNTERS\tEXPIRES\tLIMITS")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.ID, r.scopes(), cli.Plain(r.counters()), r.expiry(), cmp.Or(r.limits(), "none"))
	}
	return w.Flush()
}

func (r tokenRow) scopes() string {
	words := make([]string, len(r.Scopes))
	for i, s := range r.Scopes {
		words[i] = string(s)
	}
	if r.Public {
		words = append(words, "badges for everybody")
	}
	return strings.Join(words, ",")
}

func (r tokenRow) counters() string {
	if r.Prefixes == nil {
		return "all"
	}
	return strings.Join(r.Prefixes, "*,") + "*"
}

func (r tokenRow) expiry() string {
	switch {
	case r.Expires == nil:
		return "never"
	case r.Expired:
		return r.Expires.Format(time.RFC3339) + " (over)"
	}
	return r.Expires.Format(time.RFC3339)
}

func (r tokenRow) limits() string {
	var words []string
	for _, l := range []struct {
		limit int64
		unit  string
	}{{r.Increments, "increments/s"}, {r.Bytes, "bytes/s"}, {r.NewCounters, "new counters/h"}} {
		if l.limit > 0 {
			words = append(words, fmt.Sprintf("%d %s", l.limit, l.unit))
		}
	}
	return strings.Join(words, ", ")
}

type tokenRemoveVerb struct {
	call
	file string
}

func (c *tokenRemoveVerb) Flags() []cli.Flag { return []cli.Flag{tokensFlag(&c.file)} }

func (c *tokenRemoveVerb) Run(context.Context) error {
	if len(c.args) < 1 || len(c.args) > 2 {
		return cli.Usagef("name one NAME, and an ID if several tokens have it: countmill token remove NAME [ID] --file FILE")
	}
	if _, err := readTokens(c.file); err != nil {
		return err
	}
	removed, err := auth.Remove(c.file, c.args[0], strings.Join(c.args[1:], ""))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "removed %s %s\n", removed.Name, removed.ID())
	text, err := readTokens(c.file)
	if err == nil {
		_, err = auth.Parse(text)
	}
	if err != nil {
		return fmt.Errorf("the file has another mistake, so servers still take the token: %w", err)
	}
	return nil
}
