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
	answer, err := cl.Do(ctx, client.Request{Path: "/v1/indexes"})
	if err == nil {
		p.indexes, err = readIndexes(answer)
	}
	if err != nil {
		p.noIndexes = err
		return nil
	}
	// Indexes that need attention come first.
	slices.SortStableFunc(p.indexes, func(a, b indexState) int {
		return cmp.Compare(a.rank(), b.rank())
	})
	return answer
}

// rank is higher for an index that needs no attention.
func (x *indexState) rank() int {
	if x.State == "serving" {
		return 1
	}
	return 0
}

// indexRows are a row for each index: a state and its progress, or when it was checked.
func (p *pipeline) indexRows() []string {
	if p.noIndexes != nil {
		return []string{"unknown: " + cli.Plain(p.noIndexes.Error())}
	}
	var rows []string
	for i := range p.indexes[:min(len(p.indexes), mostIndexes)] {
		x := &p.indexes[i]
		row := cli.Plain(x.Name) + ": " + cli.Plain(x.progress())
		if x.State == "serving" {
			row += p.ago(", checked ", x.Checked)
		} else if x.Ranges > 0 {
			row += fmt.Sprintf(", %d of %d ranges", x.Done, x.Ranges)
		}
		if x.Corrected > 0 {
			row += fmt.Sprintf("; %d corrections of groups, which is a fault", x.Corrected)
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
		if !x.Ended.IsZero() {
			begun = x.Ended
		}
		if x.State != "serving" && p.AsOf.Sub(begun) > longIndex {
			late = append(late, cli.Plain(x.Name)+" is "+cli.Plain(x.progress()))
		}
	}
	return backend.Finding{
		Check: "indexes", What: "These indexes are not finished after more than an hour: " + strings.Join(late, ", ") + ".",
		Why:  "Their groups have no totals, or the name of a deleted index is not free.",
		Do:   "With roles apart, start countmill index work. Otherwise raise --index-rate.",
		Page: "runbook.md#countmillindexnotserving",
	}, len(late) > 0
}
