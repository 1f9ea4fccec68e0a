package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

// longIndex is how long an index may be built or deleted before status reports a problem:
// deploy/prometheus/alerts.yaml has the same.
const longIndex = time.Hour

// mostIndexes bounds the rows of indexes; "countmill index list" has all.
const mostIndexes = 10

// lookAtIndexes asks for the indexes whose groups the token may read. The rest of the screen is worth
// showing without them, so a failure becomes a row.
func (p *pipeline) lookAtIndexes(ctx context.Context, cl *client.Client) (answer json.RawMessage) {
	var got client.Answer
	all, err := cl.Indexes(client.WithAnswer(ctx, &got))
	if err != nil {
		p.noIndexes = err
		return nil
	}
	p.indexes = all.Indexes
	// Indexes that need attention come first.
	slices.SortStableFunc(p.indexes, func(a, b client.Index) int {
		return cmp.Compare(rankOfIndex(&a), rankOfIndex(&b))
	})
	return got.Body
}

// rankOfIndex is higher for an index that needs no attention.
func rankOfIndex(x *client.Index) int {
	if x.State == "serving" {
		return 1
	}
	return 0
}

// indexRows are a row for each index: a state and its progress, or when it was checked.
func (p *pipeline) indexRows() []string {
	if p.noIndexes != nil {
		why, _, _ := strings.Cut(p.noIndexes.Error(), ": nothing of this request was done") // which nobody asks of a look
		return []string{"unknown: " + cli.Plain(why)}
	}
	var rows []string
	for i := range p.indexes[:min(len(p.indexes), mostIndexes)] {
		x := &p.indexes[i]
		row := cli.Plain(x.Name) + ": " + cli.Plain(indexProgress(x))
		if x.State == "serving" {
			row += p.ago(", checked ", orZero(x.CheckedAt))
		} else if x.Ranges != nil && *x.Ranges > 0 {
			row += fmt.Sprintf(", %d of %d ranges", *x.RangesDone, *x.Ranges)
		}
		if x.Corrected != nil && *x.Corrected > 0 {
			row += fmt.Sprintf("; %d corrections of groups, which is a fault", *x.Corrected)
		}
		rows = append(rows, row)
	}
	if more := len(p.indexes) - len(rows); more > 0 {
		rows = append(rows, fmt.Sprintf("and %d more: countmill index list", more))
	}
	return rows
}

func (p *pipeline) indexLate() (backend.Finding, bool) {
	var late []string
	for i := range p.indexes {
		x := &p.indexes[i]
		begun := x.Since
		if x.EndedAt != nil {
			begun = *x.EndedAt
		}
		if x.State != "serving" && p.AsOf.Sub(begun) > longIndex {
			late = append(late, cli.Plain(x.Name)+" is "+cli.Plain(indexProgress(x)))
		}
	}
	return backend.Finding{
		Check: "indexes", What: "These indexes are not finished after more than an hour: " + strings.Join(late, ", ") + ".",
		Why:  "Their groups have no totals, or the name of a deleted index is not free.",
		Do:   "With roles apart, start countmill index work. Otherwise raise --index-rate.",
		Page: "runbook.md#countmillindexnotserving",
	}, len(late) > 0
}
