package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/countmill/countmill/client"
)

var recountCommand = command{
	path:  "recount",
	group: "look",
	args:  "[PREFIX]",
	short: "compare totals, series and groups with the journal",
	long: `Computes the totals and series of the counters that begin with PREFIX again from the journal, and
the groups of these counters, and compares them with the stored sums, while counting goes on. It
prints a line for each sum that differs:

  total    the total of a counter, before resets
  bucket   the sum of a minute or a quarter hour of a series
  group    the total of a group
  missing  a counter that has increments in the journal, and no record

--repair corrects these sums and no others. Each correction is in the journal. A counter is
compared if a rule for the journal has had it since its opening balance: countmill writes one when the
rule is added, for up to 10,000 counters. --opening writes opening balances for more. For counters
that are not compared the last lines say why.

  countmill recount billing:
  countmill recount billing: --repair
  countmill recount billing: --from 2026-11-01T00:00:00Z     buckets from that time on, no totals

Exit code 3: something is wrong, and was not corrected.
`,
	run: runRecount,
}

// A recounted is the answer about one piece.
type recounted struct {
	Findings []struct {
		Kind    string `json:"kind"`
		Counter string `json:"counter"`
		Time    string `json:"time"`
		Stored  int64  `json:"stored"`
		Counted int64  `json:"counted"`
		Fixed   bool   `json:"fixed"`
		Detail  string `json:"detail"`
	} `json:"findings"`
	Counters   int            `json:"counters"`
	Buckets    int            `json:"buckets"`
	Groups     int            `json:"groups"`
	Entries    int64          `json:"entries"`
	Opened     int            `json:"opened"`
	NotCovered map[string]int `json:"not_covered"`
	Names      []struct {
		Counter string `json:"counter"`
		Reason  string `json:"reason"`
	} `json:"not_covered_names"`
	Done int64  `json:"done"`
	Next string `json:"next"`
}

// A recounting is one run through all pieces.
type recounting struct {
	call
	client  *client.Client
	request map[string]any
	bar     *progress
	shown   int64

	counters, buckets, groups, opened, findings, fixed int
	notCovered                                         map[string]int
	examples                                           map[string]string
}

func runRecount(ctx context.Context, c call) error {
	prefix, err := c.onePrefix()
	if err != nil {
		return err
	}
	r := &recounting{call: c, request: map[string]any{"prefix": prefix}, notCovered: make(map[string]int), examples: make(map[string]string)}
	for name, at := range map[string]string{"from": c.recountFrom, "to": c.recountTo} {
		if at != "" {
			r.request[name] = at
		}
	}
	if c.repair {
		r.request["repair"] = true
	}
	if c.opening {
		r.request["opening"] = true
	}
	if r.client, err = c.client(); err != nil {
		return err
	}
	r.bar = startProgress(c.stderr, "recounting", "entries", 1000)
	err = r.run(ctx)
	r.bar.Stop()
	if err != nil {
		return err
	}
	r.summary()
	if left := r.findings - r.fixed; left > 0 {
		return &inconsistent{fmt.Sprintf("%d sums differ from the journal, %d corrected", r.findings, r.fixed)}
	}
	return nil
}

func (r *recounting) run(ctx context.Context) error {
	for {
		answer, err := r.client.Do(ctx, client.Request{Method: http.MethodPost, Path: "/v1/recount", Body: body(r.request), Safe: true})
		if err != nil {
			return err
		}
		var page recounted
		if err := json.Unmarshal(answer, &page); err != nil || page.Findings == nil {
			return fmt.Errorf("the server answered with something else than a recount; is that a countmill?")
		}
		r.bar.Add(page.Done-r.shown, page.Entries)
		r.shown = page.Done
		if err := r.print(answer, &page); err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		r.request["piece"] = page.Next
	}
}

func (r *recounting) print(answer []byte, page *recounted) error {
	r.counters, r.buckets, r.groups, r.opened = r.counters+page.Counters, r.buckets+page.Buckets, r.groups+page.Groups, r.opened+page.Opened
	for reason, n := range page.NotCovered {
		r.notCovered[reason] += n
	}
	for _, n := range page.Names {
		if r.examples[n.Reason] == "" {
			r.examples[n.Reason] = n.Counter
		}
	}
	r.findings += len(page.Findings)
	for _, f := range page.Findings {
		if f.Fixed {
			r.fixed++
		}
		if r.json {
			continue
		}
		if err := r.line(f.Kind, f.Counter, f.Time, fmt.Sprintf("%d, and the journal has %d", f.Stored, f.Counted), f.Fixed, f.Detail); err != nil {
			return err
		}
	}
	if r.json {
		_, err := r.stdout.Write(answer)
		return err
	}
	return nil
}

func (r *recounting) line(kind, counter, at, sums string, fixed bool, detail string) error {
	line := plain(kind) + "\t" + plain(counter)
	if at != "" {
		line += "\t" + plain(at)
	}
	line += "\t" + sums
	switch {
	case fixed:
		line += "\tcorrected"
	case detail != "":
		line += "\t" + plain(detail)
	}
	_, err := fmt.Fprintln(r.stdout, line)
	return err
}

func (r *recounting) summary() {
	fmt.Fprintf(r.stderr, "%d counters, %d buckets and %d groups compared\n", r.counters, r.buckets, r.groups)
	if r.opening {
		fmt.Fprintf(r.stderr, "%d opening balances written\n", r.opened)
	}
	for reason, n := range r.notCovered {
		fmt.Fprintf(r.stderr, "%d not compared, such as %s: %s\n", n, plain(r.examples[reason]), plain(reason))
	}
}
