package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
  watch countmill status --server https://count.example.com --token-file operator.token

The roles in the first row are those of the process that you ask. Only aggregators have heartbeats: other
publishers and readers are not shown. Duplicates and dead letters are counted since the aggregators started;
"countmill dead list" has all letters.

The token needs the scope read. A token that is limited to prefixes sees the status, the number of
aggregators, the lag, and the indexes of its counters and groups.

Exit code: 0 without problems, 1 with problems, 3 if the server cannot be reached.
`,
	New: func() cli.Verb { return new(statusVerb) },
}

// unreached is the error of a call that no server has answered.
type unreached struct{ err error }

func (e *unreached) Error() string { return e.err.Error() }
func (e *unreached) Unwrap() error { return e.err }

// A pipeline is the answer of a server about the pipeline.
type pipeline struct {
	client.Overview

	// indexes are those whose groups the token may read; noIndexes is why they are unknown.
	indexes   []client.Index
	noIndexes error
}

// look asks for the overview, and returns the answer as it came, too. The error matches *unreached if nothing answered.
func look(ctx context.Context, cl *client.Client) (p pipeline, answer []byte, err error) {
	var got client.Answer
	p.Overview, err = cl.Overview(client.WithAnswer(ctx, &got))
	if _, answered := errors.AsType[*client.Error](err); err != nil && !answered && got.Body == nil {
		err = &unreached{err}
	}
	return p, got.Body, err
}

type statusVerb struct{ calling }

func (c *statusVerb) Flags() []cli.Flag {
	return c.flags(usual, "Write the problems, and the server's answer as it is, as one JSON object.")
}

func (c *statusVerb) Run(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
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

// problems is the error that there are some.
type problems struct{ n int }

func (e *problems) Error() string {
	if e.n == 1 {
		return "1 problem"
	}
	return fmt.Sprintf("%d problems", e.n)
}
