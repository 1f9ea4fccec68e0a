package command

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/units"
)

// docs is where the documents are on the web.
const docs = "https://github.com/countmill/countmill/blob/main/docs/"

// screen is the pipeline for a person, problems first.
func (p *pipeline) screen(server string, found []backend.Finding) string {
	var b strings.Builder
	if len(found) > 0 {
		fmt.Fprintf(&b, "%s:\n\n", (&problems{len(found)}).Error())
		for _, f := range found {
			fmt.Fprintf(&b, "  %s\n    %s\n    %s%s\n\n", cli.Plain(f.What), cli.Plain(f.Do), docs, f.Page)
		}
	}
	type row struct{ name, value string }
	rows := []row{
		{"status", fmt.Sprintf("%s: %s at %s", p.Status, strings.Join(p.Roles, ", "), server)},
		{"aggregators", p.living()},
		{"lag", seconds(p.Lag)},
	}
	if start := p.SinceStart; start != nil {
		rows = append(rows, []row{
			{"increments", rate(p.IncrementsPerSecond) + perWrite(p.IncrementsPerWrite)},
			{"commits", rate(p.CommitsPerSecond)},
			{"duplicates", fmt.Sprintf("%d parts since the aggregators started", start.Duplicates)},
			{"dead letters", fmt.Sprintf("%d since the aggregators started", start.DeadLetters) + p.ago(", the last ", p.LastDeadLetter)},
			{"shards", p.limited()},
			{"disk", p.space()},
			{"last backup", strings.TrimSpace(p.ago("", p.LastBackup))},
			{"journal", p.unbalanced()},
		}...)
	}
	for i, x := range p.indexRows() {
		rows = append(rows, row{[]string{"indexes", ""}[min(i, 1)], x})
	}
	for _, row := range rows {
		if row.value != "" {
			fmt.Fprintf(&b, "%-14s%s\n", row.name, row.value)
		}
	}
	return b.String()
}

func (p *pipeline) living() string {
	text := fmt.Sprintf("%d alive", p.Aggregators)
	if stalled := p.stalled(); len(stalled) > 0 {
		text += fmt.Sprintf(", %d not taking messages", len(stalled))
	}
	if len(p.Late) > 0 {
		text += fmt.Sprintf(", %d late", len(p.Late))
	}
	return text
}

// unbalanced is not among the problems: with datastore: a new rule has no opening balance for up to two hours, and status does not know since when.
func (p *pipeline) unbalanced() string {
	if p.JournalRulesWithoutBalance == nil || *p.JournalRulesWithoutBalance == 0 {
		return ""
	}
	return fmt.Sprintf("rules without opening balances: %d, see %srunbook.md#countmilljournalwithoutbalance", *p.JournalRulesWithoutBalance, docs)
}

func (p *pipeline) stalled() []string {
	var ids []string
	for _, m := range p.Fleet {
		if m.Stalled {
			ids = append(ids, cli.Plain(m.ID))
		}
	}
	return ids
}

func seconds(s *float64) string {
	if s == nil {
		return "unknown"
	}
	return time.Duration(*s * float64(time.Second)).Round(time.Millisecond).String()
}

func rate(r *float64) string {
	if r == nil {
		return "unknown until each aggregator has reported twice"
	}
	return figure(*r) + "/s"
}

func perWrite(n *float64) string {
	if n == nil {
		return ""
	}
	return ", " + figure(*n) + " for each write"
}

// figure is a number with at most two decimals.
func figure(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// ago is how long a moment was before the answer; empty for none.
func (p *pipeline) ago(before string, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return before + units.FormatDuration(max(0, p.AsOf.Sub(t)).Round(time.Second)) + " ago"
}

func (p *pipeline) limited() string {
	if len(p.AtLimit) == 0 {
		return "no counter is at its limit"
	}
	return fmt.Sprintf("%d counters are at their limit", len(p.AtLimit))
}

// space is empty for a store that is not on a disk of the server.
func (p *pipeline) space() string {
	if p.Disk == nil {
		return ""
	}
	text := fmt.Sprintf("%s used, %s free", bytesText(p.Disk.Used), bytesText(p.Disk.Free))
	if p.Disk.MinFree > 0 {
		text += fmt.Sprintf("; increments are refused below %s", bytesText(p.Disk.MinFree))
	}
	return text
}

func bytesText(n uint64) string {
	size, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, next
	}
	return figure(size) + " " + unit
}
