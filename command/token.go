package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/units"
)

var tokenFamily = cli.Command{
	Path:  "token",
	Group: "set",
	Args:  "VERB",
	Short: "make, list or remove bearer tokens of a server's --tokens file",
	Long: `The file has a line for each token, with its SHA-256 and what it may do. These commands work on the
file, and ask no server. Servers see a changed file within 2 s.
`,
}

var tokenCommand = cli.Command{
	Path:  "token new",
	Args:  "NAME",
	Short: "make a bearer token for a server's --tokens file",
	Long: `Makes a token. It prints two lines: the token, which countmill keeps nowhere and cannot show
again, and the line for the file that the server reads (--tokens FILE). With --file it adds the line
there, and prints the token only.

  countmill token new web --scope publish --prefix page:
  countmill token new prometheus --scope read,metrics --file tokens
  countmill token new trial --scope read --expires 30d
  countmill token new guest --scope publish --prefix guest: --new-counters-per-hour 1000

NAME identifies the caller, in logs and in the ids of requests with an Idempotency-Key. To replace a
token, make a second one with the same NAME, hand it out, and remove the first. Under another NAME, a
repeated request counts again.
`,
	New: func() cli.Verb { return new(tokenVerb) },
}

var tokenListCommand = cli.Command{
	Path:  "token list",
	Short: "list the tokens of a file",
	Long: `Lists the tokens of --file: names, what they may do, and until when. Links of "countmill share" are
tokens too. ID is the beginning of the token's SHA-256; it distinguishes tokens of one name.

Exit code 1: a line of the file has a mistake. Its tokens are listed all the same.
`,
	New: func() cli.Verb { return new(tokenListVerb) },
}

var tokenRemoveCommand = cli.Command{
	Path:  "token remove",
	Args:  "NAME [ID]",
	Short: "remove a token from a file",
	Long: `Removes the line of a token from --file. Servers refuse the token within 2 s. All other lines stay
as they are, comments too.

  countmill token remove web --file tokens
  countmill token remove web 9f86d081 --file tokens

If several tokens have the NAME, say which by its ID, as "countmill token list" shows it.
`,
	New: func() cli.Verb { return new(tokenRemoveVerb) },
}

type tokenVerb struct {
	call
	limits        auth.Limits
	scopes        []string
	prefixes      []string
	expires, file string
}

func (c *tokenVerb) Flags() []cli.Flag {
	return []cli.Flag{
		cli.New("scope", "SCOPES", cli.List{To: &c.scopes, Split: true},
			"Scopes of the token, one or more with commas between: publish (count), read (totals), metrics (/metrics), admin (change, copy and correct). None implies another.").Default("none; needed"),
		cli.New("prefix", "PREFIX", cli.List{To: &c.prefixes},
			"Only counters whose names begin with PREFIX; may be repeated. backup, dead, verify, rule and recount are about all counters and are refused then.").Default("all counters"),
		expiresFlag(&c.expires),
		cli.New("increments-per-second", "N", cli.Whole(&c.limits.Increments),
			"Most increments that the token may count in a second in one process. countmill admits a request while no limit is reached, however large it is. It refuses later ones with 429 until that is made up for. 0: no limit."),
		cli.New("bytes-per-second", "N", cli.Whole(&c.limits.Bytes), "Most bytes of requests' bodies in a second. 0: no limit."),
		cli.New("new-counters-per-hour", "N", cli.Whole(&c.limits.NewCounters), "Most counters in an hour that the token has not named within the hour before. 0: no limit."),
		addToFlag(&c.file),
	}
}

func (c *tokenVerb) Run(context.Context) error {
	if len(c.args) != 1 {
		return cli.Usagef("name one NAME: countmill token new NAME --scope SCOPES")
	}
	token := auth.Token{Name: c.args[0], Limits: c.limits, Prefixes: c.prefixes}
	var err error
	if token.Scopes, err = parseScopes(c.scopes); err != nil {
		return err
	}
	if token.Expires, err = parseExpiry(c.expires, time.Now()); err != nil {
		return err
	}
	if err := c.make(token); err != nil {
		return err
	}
	c.warnStars(token.Prefixes...)
	return nil
}

// parseScopes names an unknown word. The file may have a secret in such a place, and a command line has none.
func parseScopes(words []string) (scopes []auth.Scope, err error) {
	var known []string
	for _, s := range auth.Scopes() {
		known = append(known, string(s))
	}
	for _, word := range words {
		if word = strings.TrimSpace(word); !slices.Contains(known, word) {
			return nil, cli.Usagef("--scope: %q is not a scope (limit: %s)%s", word, strings.Join(known, ", "), program().DidYouMean("", word, known))
		}
		scopes = append(scopes, auth.Scope(word))
	}
	return scopes, nil
}

func parseExpiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(now) {
		return at.UTC(), nil
	}
	if d, err := units.ParseDuration(text); err == nil && d >= time.Second {
		return now.UTC().Add(d).Truncate(time.Second), nil
	}
	return time.Time{}, cli.Usagef("--expires: must be a time to come such as 2027-01-02T15:04:05Z, or a duration such as 720h or 90d, got %q", text)
}

// ofToken turns the fields of the file into the words of the command line.
var ofToken = strings.NewReplacer("name:", "NAME:", "scopes:", "--scope:", "prefixes:", "--prefix:", "field", "flag",
	"increments_per_second:", "--increments-per-second:", "bytes_per_second:", "--bytes-per-second:", "new_counters_per_hour:", "--new-counters-per-hour:")

func (c *tokenVerb) make(token auth.Token) error {
	secret, token, err := auth.New(token)
	if err != nil {
		return cli.Usagef("%s", ofToken.Replace(err.Error()))
	}
	if c.file == "" {
		_, err := fmt.Fprintf(c.stdout, "%s\n%s\n", secret, token.Line())
		return err
	}
	if err := auth.Append(c.file, token); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, secret)
	return err
}

type tokenListVerb struct {
	call
	file string
}

func (c *tokenListVerb) Flags() []cli.Flag { return []cli.Flag{tokensFlag(&c.file)} }

func (c *tokenListVerb) Run(context.Context) error {
	text, err := readTokens(c.file)
	if err != nil {
		return err
	}
	var wrong []error
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tID\tSCOPES\tCOUNTERS\tEXPIRES\tLIMITS")
	for _, e := range auth.Entries(text) {
		if e.Err != nil {
			wrong = append(wrong, fmt.Errorf("%s: line %d: %w", c.file, e.Line, e.Err))
			continue
		}
		t := e.Token
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, t.ID(), scopesOf(t), cli.Plain(countersOf(t)), expiryOf(t, time.Now()), cmp.Or(limitsOf(t), "none"))
	}
	return errors.Join(append(wrong, w.Flush())...)
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

func scopesOf(t auth.Token) string {
	words := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		words[i] = string(s)
	}
	if t.Public {
		words = append(words, "badges for everybody")
	}
	return strings.Join(words, ",")
}

func countersOf(t auth.Token) string {
	if t.Prefixes == nil {
		return "all"
	}
	return strings.Join(t.Prefixes, "*,") + "*"
}

func expiryOf(t auth.Token, now time.Time) string {
	switch {
	case t.Expires.IsZero():
		return "never"
	case t.Expired(now):
		return t.Expires.Format(time.RFC3339) + " (over)"
	}
	return t.Expires.Format(time.RFC3339)
}

func limitsOf(t auth.Token) string {
	var words []string
	for _, l := range []struct {
		limit int64
		unit  string
	}{{t.Limits.Increments, "increments/s"}, {t.Limits.Bytes, "bytes/s"}, {t.Limits.NewCounters, "new counters/h"}} {
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
