package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var incrCommand = cli.Command{
	Path:  "incr",
	Group: "count",
	Args:  "NAME [DELTA]",
	Short: "add DELTA, or 1, to a counter",
	Long: `Adds DELTA, or 1, to the counter NAME and returns when that is durable.

  countmill incr page:/home
  countmill incr stock:apples -3
  countmill incr orders --id order-1017

It repeats by itself for a while if the server is unavailable or does not answer, and still
counts once: without --id it sends an Idempotency-Key of its own.
A name that begins with - is written after --.
`,
	New: func() cli.Verb { return new(incrVerb) },
}

type incrVerb struct {
	calling
	id, key, at string
}

func (c *incrVerb) Flags() []cli.Flag {
	return c.flags(usual, oneAnswer,
		cli.New("id", "ID", cli.Any(&c.id), "Name of the event: the same ID on the same counter counts once.").Default("none"),
		cli.New("key", "KEY", cli.Any(&c.key), "Idempotency-Key of the request: the same KEY with the same request counts once.").Default("random, without --id"),
		cli.New("time", "TIME", cli.Any(&c.at), "When it happened, as 2006-01-02T15:04:05Z.").Default("now"),
	)
}

func (c *incrVerb) Run(ctx context.Context) error {
	inc, err := parseIncrement(c.args, c.at)
	if err != nil {
		return err
	}
	for flag, text := range map[string]string{"id": c.id, "key": c.key} {
		if err := c.checkID(flag, text); err != nil {
			return err
		}
	}
	inc.ID = c.id
	key, own := c.key, c.key == "" && c.id == ""
	if own {
		key = rand.Text()
	}
	cl, err := c.client(client.WithTries(maxTries))
	if err != nil {
		return err
	}
	if err := cl.Increment(client.WithAnswer(ctx, &c.answer), inc, client.WithKey(key)); err != nil {
		return outcome(withoutKey(err), key, own)
	}
	if c.json {
		return c.writeJSON()
	}
	_, err = fmt.Fprintf(c.stdout, "%s %+d\n", inc.Counter, inc.Delta)
	return err
}

// requestID is the id of --id, or a random one.
func (c *call) requestID(id string) (string, error) {
	if !c.Given("id") {
		return rand.Text(), nil
	}
	return id, c.checkID("id", id)
}

// checkID refuses an empty or bad id that a flag gave.
func (c *call) checkID(flag, text string) error {
	if !c.Given(flag) {
		return nil
	}
	if err := countmill.CheckID("--"+flag, text); err != nil {
		return cli.Usagef("%s", err)
	}
	return nil
}

func parseIncrement(args []string, at string) (inc countmill.Increment, err error) {
	inc.Delta = 1
	if len(args) == 0 {
		return inc, cli.Usagef("NAME is missing")
	}
	if len(args) > 2 {
		return inc, cli.Usagef("too many arguments: %q (quote a name that holds spaces)", args[2])
	}
	inc.Counter = args[0]
	if err := countmill.CheckCounter(inc.Counter); err != nil {
		return inc, errName(inc.Counter, err)
	}
	if len(args) == 2 {
		delta, err := parseDelta(args[1])
		if err != nil {
			return inc, err
		}
		inc.Delta = delta
	}
	if at != "" {
		if inc.Time, err = time.Parse(time.RFC3339, at); err != nil {
			return inc, cli.Usagef("--time: must be like 2006-01-02T15:04:05Z, got %q", at)
		}
	}
	return inc, nil
}

func parseDelta(text string) (int64, error) {
	delta, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) || text[0] == '+' {
		return 0, cli.Usagef("DELTA %q is not an integer (limit: -9007199254740991 to 9007199254740991, not 0)", text)
	}
	if err := countmill.CheckDelta(delta); err != nil {
		return 0, cli.Usagef("DELTA %s: %s", text, err)
	}
	return delta, nil
}

// maxTries of one increment.
const maxTries = 6

// outcome adds the remedy to the error.
func outcome(err error, key string, own bool) error {
	switch {
	case !errors.Is(err, countmill.ErrOutcomeUnknown):
		return fmt.Errorf("not counted: %w", err)
	case own:
		return fmt.Errorf("maybe counted: %w; to repeat it safely add --key %s", err, key)
	}
	return fmt.Errorf("maybe counted: %w; repeat it with the same --id or --key", err)
}
