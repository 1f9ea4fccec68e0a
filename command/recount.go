package command

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/transfer"
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

--parallel N works at N ranges of the counters at the same time, each of which reads the whole journal:
a server works at two, so this is for several. With --state FILE a recount that was stopped goes on:
repeat the command.

  countmill recount billing:
  countmill recount billing: --repair
  countmill recount billing: --repair --state billing.recount
  countmill recount billing: --from 2026-11-01     buckets from that day on, no totals

Exit code 3: something is wrong, and was not corrected, or nothing was compared.
`,
	New: func() cli.Verb { return new(recountVerb) },
}

// A recounting is one run through all ranges.
type recounting struct {
	*recountVerb
	client  *client.Client
	request client.RecountRequest
	bar     *progress

	mu    sync.Mutex // guards what follows, and the output
	state recountState
	shown int64 // thousandths
}

type recountVerb struct {
	calling
	from, to, file  string
	repair, opening bool
	parallel        int
}

func (c *recountVerb) Flags() []cli.Flag {
	c.parallel = 1
	return c.flags(time.Hour, pages,
		cli.New("from", "TIME", cli.Day(&c.from), "Compare only buckets from this time or date on, and no totals.").Default("any"),
		cli.New("to", "TIME", cli.Day(&c.to), "Compare only buckets before this time or date, and no totals.").Default("any"),
		cli.Switch("repair", &c.repair, "Correct the sums that differ from the journal."),
		cli.Switch("opening", &c.opening, "Write opening balances, from which later recounts begin."),
		cli.New("parallel", "N", cli.Count{To: &c.parallel, Min: 1, Max: 64}, "Ranges of the counters that are recounted at the same time, each by a call that reads the whole journal."),
		cli.New("state", "STATE", cli.Any(&c.file), "File that remembers how far a recount is, so that the same command goes on.").Default("none"),
	)
}

func (c *recountVerb) Run(ctx context.Context) error {
	prefix, err := c.onePrefix()
	if err != nil {
		return err
	}
	if err := c.checkRecountPeriod(); err != nil {
		return err
	}
	r := &recounting{recountVerb: c, request: client.RecountRequest{Prefix: prefix, From: c.from, To: c.to, Repair: c.repair, Opening: c.opening}}
	release, err := transfer.Hold(c.file)
	if err != nil {
		return err
	}
	defer release()
	request, err := json.Marshal(r.request) // as SaveState writes it
	if err != nil {
		return err
	}
	if r.state, err = loadRecount(c.file, c.server, request, c.parallel); err != nil {
		return err
	}
	if r.client, err = c.client(); err != nil {
		return err
	}
	r.bar = startProgress(c.stderr, "recounting", "entries", 1000)
	err = r.run(ctx)
	r.bar.Stop()
	if err != nil {
		if c.file != "" {
			err = fmt.Errorf("%w; the same command goes on", err)
		}
		return err
	}
	r.summary()
	return r.verdict(prefix)
}

// verdict is the exit code. A recount that compared nothing proves nothing: a job that alerts on code 3 hears of that too. A recount
// that has written opening balances has done its work, also where no counter needed any.
func (r *recounting) verdict(prefix string) error {
	t := &r.state
	switch {
	case t.Findings > t.Fixed:
		return &inconsistent{fmt.Sprintf("%d sums differ from the journal, %d corrected", t.Findings, t.Fixed)}
	case t.Counters+t.Buckets+t.Opened > 0:
		return nil
	case len(t.NotCovered) > 0:
		return &inconsistent{"nothing was compared"}
	case r.opening && prefix == "":
		return nil
	}
	return &inconsistent{"nothing was compared: " + noMatch(prefix)}
}

// checkRecountPeriod refuses a period without a minute.
func (c *recountVerb) checkRecountPeriod() error {
	if c.from == "" || c.to == "" {
		return nil
	}
	from, _ := time.Parse(time.RFC3339Nano, c.from) // their flags have checked them
	to, _ := time.Parse(time.RFC3339Nano, c.to)
	if !from.Truncate(time.Minute).Before(to.Truncate(time.Minute)) {
		return cli.Usagef("--to: must be a minute after --from, or later, got %s and %s", c.to, c.from)
	}
	return nil
}

// run works at all ranges at the same time. After an error in one of them the others end.
func (r *recounting) run(ctx context.Context) error {
	if err := transfer.SaveState(r.file, &r.state); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range r.state.Ranges {
		g.Go(func() error { return r.runRange(ctx, &r.state.Ranges[i]) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if r.file == "" {
		return nil
	}
	return os.Remove(r.file) // it is over
}

func (r *recounting) runRange(ctx context.Context, x *recountRange) error {
	for !x.Over {
		page, answer, err := r.ask(ctx, x)
		if err != nil {
			return err
		}
		if err := r.add(x, answer, &page); err != nil {
			return err
		}
	}
	return nil
}

// add takes the answer about a range: it is printed before the state has it, so a stop in between prints it twice.
func (r *recounting) add(x *recountRange, answer []byte, page *client.Recounted) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.print(answer, page); err != nil {
		return err
	}
	r.state.add(page)
	x.Range, x.Over, x.Done = page.Next, page.Next == "", page.Done
	r.progress(x, page.Done, page.Entries)
	x.entries = 0
	return transfer.SaveState(r.file, &r.state)
}

// progressEvery is how often the server is asked how far a range is.
const progressEvery = time.Second

// ask sends one request, and shows how far the server is with it. Without an answer about that the bar waits.
func (r *recounting) ask(ctx context.Context, x *recountRange) (page client.Recounted, answer []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	request := r.request
	request.Run, request.Range = rand.Text(), x.Range
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if now, err := r.client.RecountProgress(ctx, request.Run); err == nil {
				r.mu.Lock()
				r.progress(x, x.Done+(x.End-x.Done)*now.Done/1000, now.Entries)
				r.mu.Unlock()
			}
		}
	})
	var got client.Answer
	page, err = r.client.Recount(client.WithAnswer(ctx, &got), request)
	cancel()
	asking.Wait()
	return page, got.Body, err
}

// progress moves the bar forward. A range is done up to the place done, in thousandths of all places.
func (r *recounting) progress(x *recountRange, done, entries int64) {
	x.shown = max(x.shown, done)
	all := int64(0)
	for i := range r.state.Ranges {
		all += max(r.state.Ranges[i].shown-r.state.Ranges[i].Begin, 0)
	}
	r.bar.Add(max(all-r.shown, 0), max(entries-x.entries, 0))
	r.shown, x.entries = max(r.shown, all), max(x.entries, entries)
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
	t := &r.state
	if r.from+r.to != "" {
		fmt.Fprintf(r.stderr, "%s of %s compared, and no totals\n", counted(t.Buckets, "bucket"), counted(t.Counters, "counter"))
	} else {
		fmt.Fprintf(r.stderr, "%s and %s compared\n", counted(t.Counters, "counter"), counted(t.Buckets, "bucket"))
	}
	if r.opening {
		fmt.Fprintf(r.stderr, "%d opening balances written\n", t.Opened)
	}
	for _, reason := range slices.Sorted(maps.Keys(t.NotCovered)) {
		example := ""
		if name := t.Examples[reason]; name != "" { // older servers do not name one of each reason
			example = ", such as " + cli.Plain(name)
		}
		fmt.Fprintf(r.stderr, "%d not compared%s: %s\n", t.NotCovered[reason], example, cli.Plain(reason))
	}
}
