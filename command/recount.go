package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var recountCommand = cli.Command{
	Path:  "recount",
	Group: "look",
	Args:  "[PREFIX]",
	Short: "compare totals and series with the journal",
	Long: `Computes the totals and series of the counters that begin with PREFIX again from the journal, and
compares them with the stored sums, while counting goes on. It prints a line for each sum that
differs:

  total    the total of a counter, before resets
  bucket   the sum of a minute or a quarter hour of a series
  missing  a counter that has increments in the journal, and no record

--repair corrects these sums and no others. Each correction is in the journal. A counter is
compared if a rule for the journal has had it since its opening balance: countmill writes one when the
rule is added, for up to 10,000 counters. --opening writes opening balances for more. For counters
that are not compared the last lines say why.

Groups have no journal: "countmill verify" compares them with their counters.

  countmill recount billing:
  countmill recount billing: --repair

Exit code 3: something is wrong, and was not corrected, or nothing was compared.
`,
	New: func() cli.Verb { return new(recountVerb) },
}

// A recounting is one run through all ranges.
type recounting struct {
	*recountVerb

	counters, buckets, opened, findings, fixed int

	notCovered map[string]int
	examples   map[string]string // a name for each reason
}

type recountVerb struct {
	calling
	repair, opening bool
}

func (c *recountVerb) Flags() []cli.Flag {
	return c.flags(time.Hour+time.Minute, pages,
		cli.Switch("repair", &c.repair, "Correct the sums that differ from the journal."),
		cli.Switch("opening", &c.opening, "Write opening balances, from which later recounts begin."),
	)
}

func (c *recountVerb) Run(ctx context.Context) error {
	prefix, err := c.onePrefix()
	if err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	r := &recounting{recountVerb: c, notCovered: make(map[string]int), examples: make(map[string]string)}
	if err := r.run(ctx, cl, client.RecountRequest{Prefix: prefix, Repair: c.repair, Opening: c.opening}); err != nil {
		return err
	}
	r.summary()
	return r.verdict(prefix)
}

// verdict is the exit code. A recount that compared nothing proves nothing: a job that alerts on code 3 hears of that too. A recount
// that has written opening balances has done its work, also where no counter needed any.
func (r *recounting) verdict(prefix string) error {
	switch {
	case r.findings > r.fixed:
		return &inconsistent{fmt.Sprintf("%d sums differ from the journal, %d corrected", r.findings, r.fixed)}
	case r.counters+r.buckets+r.opened > 0:
		return nil
	case len(r.notCovered) > 0:
		return &inconsistent{"nothing was compared"}
	case r.opening && prefix == "":
		return nil
	}
	return &inconsistent{"nothing was compared: " + noMatch(prefix)}
}

// run recounts one range after the other.
func (r *recounting) run(ctx context.Context, cl *client.Client, request client.RecountRequest) error {
	bar := startProgress(r.stderr, "recounting", "entries", 1000)
	defer bar.Stop()
	for done := int64(0); ; {
		var got client.Answer
		page, err := cl.Recount(client.WithAnswer(ctx, &got), request)
		if err != nil {
			return err
		}
		if err := r.print(got.Body, &page); err != nil {
			return err
		}
		r.add(&page)
		bar.Add(page.Done-done, page.Entries)
		if done, request.Range = page.Done, page.Next; request.Range == "" {
			return nil
		}
	}
}

// add takes the counts of a range.
func (r *recounting) add(page *client.Recounted) {
	r.counters, r.buckets, r.opened = r.counters+page.Counters, r.buckets+page.Buckets, r.opened+page.Opened
	for reason, n := range page.NotCovered {
		r.notCovered[reason] += n
	}
	for _, n := range page.NotCoveredNames {
		if r.examples[n.Reason] == "" {
			r.examples[n.Reason] = n.Counter
		}
	}
	r.findings += len(page.Findings)
	for _, f := range page.Findings {
		if f.Fixed {
			r.fixed++
		}
	}
}

func (r *recounting) print(answer []byte, page *client.Recounted) error {
	for _, f := range page.Findings {
		if r.json {
			continue
		}
		if err := r.line(f.Kind, f.Counter, stamp(f.Time), fmt.Sprintf("%s, and the journal has %s", f.Stored, f.Counted), f.Fixed, f.Detail); err != nil {
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
	line := cli.Plain(kind) + "\t" + cli.Plain(counter)
	if at != "" {
		line += "\t" + cli.Plain(at)
	}
	line += "\t" + sums
	switch {
	case fixed:
		line += "\tcorrected"
	case detail != "":
		line += "\t" + cli.Plain(detail)
	}
	_, err := fmt.Fprintln(r.stdout, line)
	return err
}

func (r *recounting) summary() {
	fmt.Fprintf(r.stderr, "%s and %s compared\n", counted(r.counters, "counter"), counted(r.buckets, "bucket"))
	if r.opening {
		fmt.Fprintf(r.stderr, "%s written\n", counted(r.opened, "opening balance"))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.notCovered)) {
		example := ""
		if name := r.examples[reason]; name != "" { // older servers do not name one of each reason
			example = ", such as " + cli.Plain(name)
		}
		fmt.Fprintf(r.stderr, "%d not compared%s: %s\n", r.notCovered[reason], example, cli.Plain(reason))
	}
}
