package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/app"
)

var tokenCommand = command{
	name:  "token",
	args:  "new NAME",
	short: "make a bearer token for a server's --tokens file",
	long: `Makes a token, without asking a server. It prints two lines: the token, which is kept
nowhere and cannot be shown again, and the line for the file that the server reads
(--tokens FILE), which holds its SHA-256. Servers see a changed file within seconds.

  countmill token new web --scope publish --prefix page:
  countmill token new prometheus --scope read,metrics --file tokens
  countmill token new trial --scope read --expires 720h
  countmill token new guest --scope publish --prefix guest: --new-counters-per-hour 1000

NAME says who it is, in logs and in the ids of requests with an Idempotency-Key. A second
token of the same NAME is another one of the same caller: add it, hand it out, and take the
first out of the file. Under another NAME, a request that is repeated counts again.
`,
	flags: func() string {
		return `  --scope SCOPES
      What it may do, one or more with commas between: publish (count), read (totals),
      metrics (/metrics), admin (change, copy and correct). None implies another.
  --prefix PREFIX
      Only counters whose names begin so; may stand several times. backup, dead and
      verify, which are about all counters, are refused then. Default: all.
  --expires WHEN
      A time such as 2027-01-02T15:04:05Z, or how long from now, such as 720h or 90d.
      Default: never.
  --increments-per-second N, --bytes-per-second N, --new-counters-per-hour N
      The most that the token may count in one process: increments, bytes of requests'
      bodies, and counters that it has not named within the last hour. A request is
      admitted while no limit is reached, however large it is; later ones are
      refused with 429 until that is made up for. Default: 0, no limit.
  --file FILE
      Append the line to FILE, which is made if missing, and print the token only.
`
	},
	run: runToken,
}

func runToken(_ context.Context, c call) error {
	set := pflag.NewFlagSet("token", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	scopes := set.StringSlice("scope", nil, "")
	prefixes := set.StringArray("prefix", nil, "")
	expires := set.String("expires", "", "")
	var limits access.Limits
	set.Int64Var(&limits.Increments, "increments-per-second", 0, "")
	set.Int64Var(&limits.Bytes, "bytes-per-second", 0, "")
	set.Int64Var(&limits.NewCounters, "new-counters-per-hour", 0, "")
	file := set.String("file", "", "")
	flags, args, err := splitArgs(set, c.args)
	if err != nil {
		return err
	}
	if err := app.FlagError(set.Parse(flags)); err != nil {
		return err
	}
	if len(args) != 2 || args[0] != "new" {
		return app.Usagef("name one NAME: countmill token new NAME --scope SCOPES")
	}
	token := access.Token{Name: args[1], Limits: limits}
	for _, s := range *scopes {
		token.Scopes = append(token.Scopes, access.Scope(strings.TrimSpace(s)))
	}
	if set.Changed("prefix") {
		token.Prefixes = *prefixes
	}
	if token.Expires, err = parseExpiry(*expires, time.Now()); err != nil {
		return err
	}
	return makeToken(c, token, *file)
}

var days = regexp.MustCompile(`^[1-9][0-9]{0,4}d$`)

func parseExpiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(now) {
		return at.UTC(), nil
	}
	if days.MatchString(text) {
		n, _ := strconv.Atoi(strings.TrimSuffix(text, "d")) // the pattern holds digits only
		return now.UTC().AddDate(0, 0, n).Truncate(time.Second), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= time.Second {
		return now.UTC().Add(d).Truncate(time.Second), nil
	}
	return time.Time{}, app.Usagef("--expires: must be a time to come such as 2027-01-02T15:04:05Z, or a duration such as 720h or 90d, got %q", text)
}

// ofToken turns the fields of the file into what was written on the command line.
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
