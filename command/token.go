package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/units"
)

var tokenFamily = command{
	path:  "token",
	group: "set",
	args:  "VERB",
	short: "make, list or remove bearer tokens of a server's --tokens file",
	long: `The file has a line for each token, with its SHA-256 and what it may do. These commands work on the
file, and ask no server. Servers see a changed file within 2 s.
`,
}

var tokenCommand = command{
	path:  "token new",
	args:  "NAME",
	short: "make a bearer token for a server's --tokens file",
	long: `Makes a token. It prints two lines: the token, which countmill keeps nowhere and cannot show
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
	run: runToken,
}

var tokenListCommand = command{
	path:  "token list",
	short: "list the tokens of a file",
	long: `Lists the tokens of --file: names, what they may do, and until when. Links of "countmill share" are
tokens too. ID is the beginning of the token's SHA-256; it distinguishes tokens of one name.

Exit code 1: a line of the file has a mistake. Its tokens are listed all the same.
`,
	run: runTokenList,
}

var tokenRemoveCommand = command{
	path:  "token remove",
	args:  "NAME [ID]",
	short: "remove a token from a file",
	long: `Removes the line of a token from --file. Servers refuse the token within 2 s. All other lines stay
as they are, comments too.

  countmill token remove web --file tokens
  countmill token remove web 9f86d081 --file tokens

If several tokens have the NAME, say which by its ID, as "countmill token list" shows it.
`,
	run: runTokenRemove,
}

func runToken(_ context.Context, c call) error {
	if len(c.args) != 1 {
		return app.Usagef("name one NAME: countmill token new NAME --scope SCOPES")
	}
	token := auth.Token{Name: c.args[0], Limits: c.limits, Prefixes: c.prefixes}
	var err error
	if token.Scopes, err = parseScopes(c.scopes); err != nil {
		return err
	}
	if token.Expires, err = parseExpiry(c.expires, time.Now()); err != nil {
		return err
	}
	if err := makeToken(c, token, c.file); err != nil {
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
			return nil, app.Usagef("--scope: %q is not a scope (limit: %s)%s", word, strings.Join(known, ", "), didYouMean("", word, known))
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
	return time.Time{}, app.Usagef("--expires: must be a time to come such as 2027-01-02T15:04:05Z, or a duration such as 720h or 90d, got %q", text)
}

// ofToken turns the fields of the file into the words of the command line.
var ofToken = strings.NewReplacer("name:", "NAME:", "scopes:", "--scope:", "prefixes:", "--prefix:", "field", "flag",
	"increments_per_second:", "--increments-per-second:", "bytes_per_second:", "--bytes-per-second:", "new_counters_per_hour:", "--new-counters-per-hour:")

func makeToken(c call, token auth.Token, file string) error {
	secret, token, err := auth.New(token)
	if err != nil {
		return app.Usagef("%s", ofToken.Replace(err.Error()))
	}
	if file == "" {
		_, err := fmt.Fprintf(c.stdout, "%s\n%s\n", secret, token.Line())
		return err
	}
	if err := auth.Append(file, token); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, secret)
	return err
}
