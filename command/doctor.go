package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
)

var doctorCommand = cli.Command{
	Path:  "doctor",
	Group: "look",
	Short: "look for mistakes of a deployment, from where it runs",
	Long: `Examines a running countmill (--server), and the backends of a role: give it the --store, --bus and
--cache of that role, or run it where their variables are set. Each finding says what is wrong, why it
matters and what to do. It needs no running role for the backends, and disturbs none.
With --store and --bus the account is that of an aggregator, and must be able to write to the store; for up
give --bus inproc:. With --store alone it may be that of a reader: that it may not write is no finding.

  countmill doctor
  countmill doctor --store datastore://PROJECT/DATABASE --bus 'pubsub://PROJECT/TOPIC?subscription=NAME'

It asks the server if --server is given, or if no backend is. It changes nothing, but on datastore: it
writes and removes 26 entities of its own, and in the directory of pebble: one file.

The limit of open files is that of doctor and of its shell. A running countmill may have another one.

Exit code: 0 without findings, 1 with findings, 3 if the server cannot be reached.
`,
	New: func() cli.Verb { return new(doctorVerb) },
}

func examined(name, help string, to *string) cli.Flag {
	return cli.New(name, "URL", cli.Any(to), help).FromEnv().Default("not examined")
}

// mostServerSkew is the difference between the clocks of two machines from which it is a finding.
const mostServerSkew = 5 * time.Second

type doctorVerb struct {
	calling
	cfg app.Config // of the backends to examine
}

func (c *doctorVerb) Flags() []cli.Flag {
	c.cfg = app.Defaults(0)
	return c.flags(usual, "",
		examined("store", "The store of a role, as the role has it.", &c.cfg.Store),
		examined("bus", "The bus of a role, as the role has it.", &c.cfg.Bus),
		examined("cache", "The cache of a reader, as the reader has it.", &c.cfg.Cache),
		cli.Switch("json", &c.json, "Write the report as JSON.").In(otherSection),
	)
}

func (c *doctorVerb) Run(ctx context.Context) error {
	r := &backend.Report{Findings: []backend.Finding{}, Checked: []backend.Checked{}, Unchecked: []backend.Unchecked{}}
	which := app.Exams{Store: c.Given("store"), Bus: c.Given("bus"), Cache: c.Given("cache")}
	c.cfg.Stores, c.cfg.Buses, c.cfg.Buckets = c.stores, c.buses, c.buckets
	if err := app.Examine(ctx, c.cfg, which, r); err != nil {
		return err
	}
	var failed error
	if c.Given("server") || which == (app.Exams{}) {
		failed = c.examineServer(ctx, r)
	}
	if _, silent := errors.AsType[*unreached](failed); failed != nil && !silent && which == (app.Exams{}) {
		return failed // there is nothing to report
	}
	if err := c.printReport(r, failed == nil); err != nil {
		return err
	}
	if failed == nil && len(r.Findings) > 0 {
		return &problems{len(r.Findings)}
	}
	return failed
}

// examineServer adds the problems of the pipeline and the settings in which aggregators differ.
func (c *doctorVerb) examineServer(ctx context.Context, r *backend.Report) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	began := time.Now()
	p, _, err := look(ctx, cl)
	if err != nil {
		return err
	}
	took := time.Since(began)
	r.Done("server", p.Status)
	for _, f := range p.problems() {
		r.Find(f)
	}
	for _, d := range p.Differences {
		r.Find(different(d.Setting, d.Values))
	}
	switch {
	case len(p.Fleet) > 0:
		r.Done("settings of the fleet", "")
	case p.Aggregators > 0:
		r.Skip("settings of the fleet", "with a token that is limited to prefixes the server answers neither this nor the disk, backups and reasons")
	default:
		r.Skip("settings of the fleet", "no aggregator reports")
	}
	// The answer's time is between the two moments.
	skew := p.AsOf.Sub(began.Add(took / 2)).Abs()
	r.Done("clock of the server", skew.Round(time.Millisecond).String()+" from this machine's")
	if skew-took/2 >= mostServerSkew {
		r.Find(backend.Finding{
			Check: "clock", What: fmt.Sprintf("The server's clock and this machine's differ by %s.", skew.Round(time.Second)),
			Why: "Lag and the times of increments are wrong, and from a minute on an aggregator with a wrong clock is not ready.",
			Do:  "Set the clock that is wrong, and run NTP on both.", Page: "runbook.md#countmillclockoff",
		})
	}
	return nil
}

func different(setting string, values []string) backend.Finding {
	f := backend.Finding{
		Check: "settings of the fleet", What: fmt.Sprintf("Aggregators differ in --%s: %s.", setting, strings.Join(values, ", ")),
		Why: "They judge the same load differently: some hold increments longer, or give counters other numbers of shards.",
		Do:  "Give all of them the same value, and restart them one by one.", Page: "howto/freshness-and-cost.md",
	}
	switch setting {
	case "version":
		f.What = "Aggregators run different versions: " + strings.Join(values, ", ") + "."
		f.Why, f.Do, f.Page = "An upgrade is under way, or was forgotten on some.", "Finish the upgrade.", "howto/upgrade-and-restore.md"
	case "settings_version":
		f.What = "Aggregators go by different versions of the database's settings: " + strings.Join(values, ", ") + "."
		f.Why, f.Do, f.Page = "The one with the old version has not read the database lately.",
			"Run doctor again in a minute. If they still differ, read the log of the aggregators for the error.", "reference/readiness.md"
	}
	return f
}

// printReport says that nothing was found only if it has asked all that it was to ask.
func (c *doctorVerb) printReport(r *backend.Report, examined bool) error {
	if c.json {
		return writeJSON(c.stdout, r)
	}
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s: %s\n  Why: %s\n  Do:  %s\n  See: %s%s\n\n", f.Check, cli.Plain(f.What), cli.Plain(f.Why), cli.Plain(f.Do), docs, f.Page)
	}
	switch {
	case len(r.Findings) > 0:
	case examined:
		b.WriteString("No findings.\n")
	default:
		b.WriteString("The server was not examined. The other checks found nothing.\n")
	}
	for _, done := range r.Checked {
		fmt.Fprintf(&b, "checked      %s\n", strings.TrimSuffix(done.Check+": "+cli.Plain(done.Note), ": "))
	}
	for _, left := range r.Unchecked {
		fmt.Fprintf(&b, "not checked  %s: %s\n", left.Check, cli.Plain(left.Why))
	}
	_, err := io.WriteString(c.stdout, b.String())
	return err
}
