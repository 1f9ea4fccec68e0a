package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
)

var journalCommand = command{
	path:  "journal",
	group: "count",
	args:  "NAME",
	short: "print the increments of a counter under a rule for the journal",
	long: `Prints a line for each entry, the oldest first: its time, the delta, who sent it, the id of its
part and its key, with tabs between. It needs a rule for the journal ("countmill help rule"). An
entry is one increment, or several of one sender that were sent together. - is a sender that is
not known.

  countmill journal billing:shop-7
  countmill journal billing:shop-7 --id order-1001
  countmill journal billing:shop-7 --after KEY       go on after the last key of before
  countmill journal billing:shop-7 --before KEY --limit 20
`,
	run: runJournal,
}

// journalAsk is how many entries are asked for at a time.
const journalAsk = 1000

func runJournal(ctx context.Context, c call) error {
	if err := checkNames(c.args, 1); err != nil {
		return err
	}
	if c.after != "" && c.before != "" {
		return app.Usagef("--after and --before: name one of them")
	}
	query := url.Values{"counter": c.args}
	for name, value := range map[string]string{"id": c.id, "after": c.after, "before": c.before} {
		if value != "" {
			query.Set(name, value)
		}
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	printed := 0
	for left := c.limit; ; {
		ask := journalAsk
		if c.limit > 0 {
			ask = min(left, journalAsk)
		}
		query.Set("limit", strconv.Itoa(ask))
		answer, err := cl.Do(ctx, client.Request{Path: "/v1/journal", Query: query})
		if err != nil {
			return err
		}
		n, next, err := printJournal(c, answer)
		printed += n
		if left -= n; err != nil || next == "" || c.before != "" || c.limit > 0 && left <= 0 {
			if err == nil && printed == 0 && !c.json {
				fmt.Fprintln(c.stderr, "no entries; countmill rule list shows which counters have a journal")
			}
			return err
		}
		query.Set("after", next)
	}
}

// printJournal returns how many entries the page has, and where the next one begins.
func printJournal(c call, answer []byte) (n int, next string, err error) {
	var page struct {
		Entries []struct {
			Key, Time, Part, Sender string
			Delta                   json.Number
		}
		Next string
	}
	if err := json.Unmarshal(answer, &page); err != nil || page.Entries == nil {
		return 0, "", fmt.Errorf("the server answered with something else than a journal; is that a countmill?")
	}
	if c.json {
		_, err := c.stdout.Write(answer)
		return len(page.Entries), page.Next, err
	}
	for _, e := range page.Entries {
		sender := plain(e.Sender)
		if sender == "" {
			sender = "-"
		}
		if _, err := fmt.Fprintf(c.stdout, "%s\t%s\t%s\t%s\t%s\n", plain(e.Time), e.Delta, sender, plain(e.Part), plain(e.Key)); err != nil {
			return 0, "", err
		}
	}
	return len(page.Entries), page.Next, nil
}
