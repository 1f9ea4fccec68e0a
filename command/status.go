package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var statusCommand = cli.Command{
	Path:  "status",
	Group: "look",
	Short: "show the whole pipeline on one screen, problems first",
	Long: `Asks a reader, or "countmill up", for the state of the pipeline. The aggregators' heartbeats have it, so
it is some seconds old, and no counter is read. Each problem comes with what to do and with the
page of the runbook. "countmill doctor" looks deeper.

  countmill status
  countmill status --watch --server https://count.example.com --token-file operator.token

The roles in the first row are those of the process that you ask. Only aggregators have heartbeats: other
publishers and readers are not shown. Duplicates and dead letters are counted since the aggregators started;
"countmill dead list" has all letters.

The token needs the scope read. A token that is limited to prefixes sees the status, the number of
aggregators, the lag, and the indexes of its counters and groups.

Exit code: 0 without problems, 1 with problems, 3 if the server cannot be reached. With --watch the
screen comes again every 2 s, until Ctrl-C, which ends it with 0.
`,
	New: func() cli.Verb { return new(statusVerb) },
}

// statusEvery is how often --watch looks. Heartbeats come every 5 s.
const statusEvery = 2 * time.Second

// unreached is the error of a call that no server has answered.
type unreached struct{ err error }

func (e *unreached) Error() string { return e.err.Error() }
func (e *unreached) Unwrap() error { return e.err }

// A pipeline is the answer of GET /v1/overview.
type pipeline struct {
	Roles       []string `json:"roles"`
	Aggregators int      `json:"aggregators"`
	Status      string   `json:"status"`
	Reason      string   `json:"reason"`
	Lag         *float64 `json:"lag"`
	Increments  *float64 `json:"increments_per_second"`
	Commits     *float64 `json:"commits_per_second"`
	PerWrite    *float64 `json:"increments_per_write"`
	// SinceStart, like all that comes after it but AsOf, is absent if the token is limited to prefixes.
	SinceStart *struct {
		Duplicates  int64 `json:"duplicates"`
		DeadLetters int64 `json:"dead_letters"`
	} `json:"since_start"`
	AtLimit        []string  `json:"at_limit"`
	AsOf           time.Time `json:"as_of"`
	LastDeadLetter time.Time `json:"last_dead_letter"`
	LastBackup     time.Time `json:"last_backup"`
	// BackupEvery is in seconds; 0 without regular backups.
	BackupEvery float64 `json:"backup_every"`
	// Unbalanced is the number of rules for the journal that lack opening balances; 0 also if the process does not know it.
	Unbalanced int `json:"journal_rules_without_balance"`
	Fleet      []struct {
		ID      string  `json:"id"`
		Stalled bool    `json:"stalled"`
		Skew    float64 `json:"clock_skew"` // seconds
	} `json:"fleet"`
	Late        []string `json:"late"`              // aggregators whose last heartbeat ran out
	Unread      bool     `json:"heartbeats_unread"` // the store did not give them
	Differences []struct {
		Setting string   `json:"setting"`
		Values  []string `json:"values"`
	} `json:"differences"`
	Disk *struct {
		Used    uint64 `json:"used"`
		Free    uint64 `json:"free"`
		MinFree uint64 `json:"min_free"`
	} `json:"disk"`

	// indexes are of GET /v1/indexes; noIndexes is why they are unknown.
	indexes   []indexState
	noIndexes error
}

// look asks for the overview. The error matches *unreached if nothing answered.
func look(ctx context.Context, cl *client.Client) (p pipeline, answer []byte, err error) {
	answer, err = cl.Do(ctx, client.Request{Path: "/v1/overview"})
	if _, answered := errors.AsType[*client.Error](err); err != nil && !answered {
		return p, nil, &unreached{err}
	}
	if err != nil {
		return p, nil, err
	}
	if err := json.Unmarshal(answer, &p); err != nil || p.Status == "" || p.AsOf.IsZero() {
		return p, nil, errors.New("the server answered with something else than an overview; is that a countmill of this version?")
	}
	return p, answer, nil
}

type statusVerb struct {
	calling
	repeat bool
}

func (c *statusVerb) Flags() []cli.Flag {
	return c.flags(usual, "Write the problems, and the server's answer as it is, as one JSON object a look.", cli.Switch("watch", &c.repeat, "Look again every 2 s, until Ctrl-C."))
}

func (c *statusVerb) Run(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if !c.repeat {
		return c.status(ctx, cl)
	}
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		if cli.IsTerminal(c.stdout) {
			fmt.Fprint(c.stdout, "\x1b[H\x1b[2J")
		}
		err := c.remedied(c.status(ctx, cl))
		if ctx.Err() != nil {
			return nil // Ctrl-C is how it ends
		}
		if _, found := errors.AsType[*problems](err); err != nil && !found {
			fmt.Fprintf(c.stderr, "countmill: %v; still watching\n", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// problems is the error that there are some.
type problems struct{ n int }

func (e *problems) Error() string {
	if e.n == 1 {
		return "1 problem"
	}
	return fmt.Sprintf("%d problems", e.n)
}

// status looks once.
func (c *statusVerb) status(ctx context.Context, cl *client.Client) error {
	p, answer, err := look(ctx, cl)
	if err != nil {
		return err
	}
	indexes := p.lookAtIndexes(ctx, cl)
	found := p.problems()
	if c.json {
		err = json.NewEncoder(c.stdout).Encode(struct {
			Problems []backend.Finding `json:"problems"`
			Overview json.RawMessage   `json:"overview"`
			Indexes  json.RawMessage   `json:"indexes"`
		}{found, answer, indexes})
	} else {
		_, err = fmt.Fprint(c.stdout, p.screen(c.server, found))
	}
	if err == nil && len(found) > 0 {
		return &problems{len(found)}
	}
	return err
}
