package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
)

// A calling verb calls a server.
type calling struct {
	call
	server, token, tokenFile string
	insecure, json           bool
	timeout                  time.Duration

	asks   *client.Client // of asked
	answer client.Answer
}

// The usual help of --json.
const (
	oneAnswer = "Write the server's answer as it is."
	pages     = "Write the server's answers as they are, a page a line."
)

// usual is the default of --timeout. The longest time-out is for backups of large stores.
const (
	usual                  = 15 * time.Second
	minTimeout, maxTimeout = time.Millisecond, 30 * 24 * time.Hour
)

// Flags are those of a verb that has no other ones.
func (c *calling) Flags() []cli.Flag { return c.flags(usual, oneAnswer) }

// flags are those of a call and then the verb's own. json is the help of --json; empty for none.
func (c *calling) flags(timeout time.Duration, json string, own ...cli.Flag) []cli.Flag {
	c.server, c.timeout = "http://"+app.DefaultListen, timeout
	all := []cli.Flag{
		cli.New("server", "URL", cli.Any(&c.server), "The countmill to call.").FromEnv(),
		cli.New("timeout", "DURATION", cli.Duration{To: &c.timeout, Min: minTimeout, Max: maxTimeout},
			"How long the server may take to answer one call, repeats included. It does not bound how long a command or a stream lives.").FromEnv(),
		cli.New("token", "TOKEN", cli.Any(&c.token), "The bearer token to send. Other users of this machine see it in the list of processes: prefer the variable or --token-file.").
			FromEnv().Default("none").Instead("token-file", "both name the token to send"),
		cli.New("token-file", "FILE", cli.Any(&c.tokenFile), "File with the token alone.").FromEnv().Default("none"),
		cli.Switch("insecure", &c.insecure, "Send the token over plain http to other machines too."),
	}
	if json != "" {
		all = append(all, cli.Switch("json", &c.json, json))
	}
	for i := range all {
		all[i] = all[i].In(callsSection)
	}
	return append(all, own...)
}

// client is for the server and the token that the flags name. It sends each call once unless
// options say otherwise.
func (c *calling) client(options ...client.Option) (*client.Client, error) {
	token, err := c.sentToken()
	if err != nil {
		return nil, err
	}
	all := []client.Option{client.WithTimeout(c.timeout), client.WithTries(1)}
	if token != "" {
		all = append(all, client.WithToken(token))
	}
	if c.insecure {
		all = append(all, client.WithInsecure())
	}
	base := c.server
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	cl, err := client.New(base, append(all, options...)...)
	if err != nil {
		return nil, cli.Usagef("%s", inFlags.Replace(err.Error()))
	}
	return cl, nil
}

// inFlags makes flags of what package client calls its parameters.
var inFlags = strings.NewReplacer("client: the address must hold no name and no password", "--server: must hold no name and no password; use --token-file",
	"client: the address", "--server:", "client: a token", "--token:", "WithInsecure", "--insecure")

// remedied adds the flag that helps after an error of package client.
func (c *calling) remedied(err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return c.remediedAnswer(err, e)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return fmt.Errorf("%w; start one with `countmill up`, or name another with --server URL", err)
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrSilent) {
		return fmt.Errorf("%w (--timeout %s)", err, c.timeout)
	}
	return err
}

// remediedAnswer adds what helps after the answer e of a server, which err has.
func (c *calling) remediedAnswer(err error, e *client.Error) error {
	token := c.sentBy()
	switch {
	case e.Status == http.StatusUnauthorized && token != "":
		return fmt.Errorf("%w; it is that of %s; \"countmill token list\" shows the tokens of the server's file", err, token)
	case e.Status == http.StatusUnauthorized:
		return fmt.Errorf("%w; give one with --token-file or COUNTMILL_TOKEN", err)
	case e.Type == "no-index":
		return fmt.Errorf("%w; \"countmill index list\" shows the indexes", err)
	case e.Type == "other-count" && e.Limit != "":
		return fmt.Errorf("%w; repeat it with --count %s, or give another --id", err, e.Limit)
	}
	return err
}

// sentBy names the flag or the variable of the token that is sent; empty for none.
func (c *calling) sentBy() string {
	switch {
	case c.tokenFile != "":
		return c.Typed("token-file") + " " + c.tokenFile
	case c.token != "":
		return c.Typed("token")
	}
	return ""
}

// sentToken is the token to send, empty for none.
func (c *calling) sentToken() (string, error) {
	if c.tokenFile != "" {
		token, err := readToken(c.tokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		return token, nil
	}
	if c.Given("token") && !tokenText.MatchString(c.token) {
		return "", cli.Usagef("--token: is not a token; `countmill token new` makes one")
	}
	return c.token, nil
}

// tokenText is any text that can follow Bearer; the server knows which are tokens.
var tokenText = regexp.MustCompile(`^[A-Za-z0-9._~+/-]{1,256}=*$`)

func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if !tokenText.MatchString(token) {
		return "", errors.New(path + " must hold a token alone, the first line that `countmill token new` prints")
	}
	return token, nil
}

// asked calls a method of the client. The answer as the server sent it is in c.answer. The first call of a verb must not be at the same time
// as others.
func asked[T any](ctx context.Context, c *calling, method func(ctx context.Context, cl *client.Client) (T, error)) (v T, err error) {
	if c.asks == nil {
		if c.asks, err = c.client(); err != nil {
			return v, err
		}
	}
	return method(client.WithAnswer(ctx, &c.answer), c.asks)
}

// shown calls a method of the client and shows the answer: as it is with --json, and otherwise as text does.
func shown[T any](ctx context.Context, c *calling, method func(ctx context.Context, cl *client.Client) (T, error), text func(T) error) error {
	v, err := asked(ctx, c, method)
	switch {
	case err != nil:
		return err
	case c.json:
		return c.writeJSON()
	}
	return text(v)
}

// writeJSON writes the answer as it is, with --json.
func (c *calling) writeJSON() error {
	if !c.json {
		return nil
	}
	_, err := c.stdout.Write(c.answer.Body)
	return err
}

// set is an option of a read: a parameter, unless its text is empty.
func set(name, text string) client.ReadOption {
	return func(query url.Values) {
		if text != "" {
			query.Set(name, text)
		}
	}
}

// stamp is a time as the server writes it; empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// shortStamp leaves fractions of a second out.
func shortStamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// withGroups are the names of the arguments and of --group.
func withGroups(args, groups []string) ([]string, error) {
	names := append([]string{}, args...)
	for _, g := range groups {
		if g == "" || countmill.IsGroup(g) {
			return nil, cli.Usagef("--group: %q is empty or begins with = (limit: the name of a group without its =)", g)
		}
		names = append(names, countmill.GroupMark+g)
	}
	return names, nil
}

// checkNames refuses names that the server would refuse.
func checkNames(names []string, most int) error {
	if len(names) == 0 {
		return cli.Usagef("NAME is missing")
	}
	if len(names) > most {
		return cli.Usagef("%d names are too many (limit: %d)", len(names), most)
	}
	for _, name := range names {
		if err := checkCounter(name); err != nil {
			return err
		}
	}
	return nil
}

func checkCounter(name string) error {
	if err := countmill.CheckName(name); err != nil {
		return errName(name, err)
	}
	return nil
}

// maxShown is how much of a name an error quotes: the reason after it must be in sight.
const maxShown = 60

// errName is the error about a NAME.
func errName(name string, err error) error {
	if len(name) <= maxShown {
		return cli.Usagef("NAME %q: %s", name, err)
	}
	return cli.Usagef("NAME %q... of %d bytes: %s", strings.ToValidUTF8(name[:maxShown], ""), len(name), err)
}

// oneName is the NAME of a command that takes one.
func (c *call) oneName() (string, error) {
	if len(c.args) > 1 {
		return "", cli.Usagef("too many arguments: %q; name one (quote a name that holds spaces)", c.args[1])
	}
	return strings.Join(c.args, ""), checkNames(c.args, 1)
}

// onePrefix is the PREFIX of a command that takes one or none.
func (c *call) onePrefix() (string, error) {
	if len(c.args) > 1 {
		return "", cli.Usagef("too many arguments: %q (quote a prefix that holds spaces)", c.args[1])
	}
	return strings.Join(c.args, ""), nil
}
