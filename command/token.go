package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/units"
)

var tokenFamily = command{
	path:  "token",
	group: "set",
	args:  "new NAME",
	short: "make a bearer token for a server's --tokens file",
}

var tokenCommand = command{
	path:  "token new",
	args:  "NAME",
	short: "make a bearer token for a server's --tokens file",
	long: `Makes a token, without asking a server. It prints two lines: the token, which
countmill keeps nowhere and cannot show again, and the line for the file that the server reads
(--tokens FILE), which holds its SHA-256. Servers see a changed file within seconds.

  countmill token new web --scope publish --prefix page:
  countmill token new prometheus --scope read,metrics --file tokens
  countmill token new trial --scope read --expires 720h
  countmill token new guest --scope publish --prefix guest: --new-counters-per-hour 1000

NAME identifies the caller, in logs and in the ids of requests with an Idempotency-Key. To replace a
token, make a second one with the same NAME, add it, hand it out, and remove the first from the
file. Under another NAME, a repeated request counts again.
`,
	run: runToken,
}

func runToken(_ context.Context, c call) error {
	if len(c.args) != 1 {
		return app.Usagef("name one NAME: countmill token new NAME --scope SCOPES")
	}
	token := access.Token{Name: c.args[0], Limits: c.limits, Prefixes: c.prefixes}
	for _, s := range c.scopes {
		token.Scopes = append(token.Scopes, access.Scope(strings.TrimSpace(s)))
	}
	var err error
	if token.Expires, err = parseExpiry(c.expires, time.Now()); err != nil {
		return err
	}
	return makeToken(c, token, c.file)
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

func makeToken(c call, token access.Token, file string) error {
	secret, token, err := access.New(token)
	if err != nil {
		return app.Usagef("%s", ofToken.Replace(err.Error()))
	}
	if file == "" {
		_, err := fmt.Fprintf(c.stdout, "%s\n%s\n", secret, token.Line())
		return err
	}
	if err := appendLine(file, token.Line()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, secret)
	return err
}

// appendLine adds a line to a file of tokens in one write. It adds to none that a server
// would refuse.
func appendLine(path, line string) (err error) {
	text, err := access.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, err)
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		line = "\n" + line
	}
	if _, err := access.Parse([]byte(string(text) + line + "\n")); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}
