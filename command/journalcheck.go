package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
)

var journalCheckCommand = command{
	path:  "journal check",
	short: "find records of the journal that were changed, removed or added",
	long: `Reads the records of each hour that has a head in FILE, the log of an aggregator with
--journal-key, and prints a line for each problem:

  hour        its records are not those of its head: one was removed, added, moved or sealed again
  changed     a record that is not as it was sealed, or was sealed with another key
  unsealed    a record without a seal
  unreadable  bytes that are no record

Entries that "countmill journal erase" has erased are no problem. Hours whose records may be gone by
now, because their time is over, are counted as expired.

  countmill journal check --heads aggregator.log --key journal.key

Exit code 3: something is wrong.
`,
	run: runJournalCheck,
}

var journalEraseCommand = command{
	path:  "journal erase",
	args:  "NAME",
	short: "remove the entries of a counter from the journal",
	long: `Removes the counter's name and its deltas from all records. Sealed records keep a hash of each
entry, so "countmill journal check" still finds changes of them. End the counter's rule first: entries
of the last moments stay, and the last line says from when on.

  countmill journal erase user:42:orders --yes
`,
	run: runJournalErase,
}

// A journalCheck is one run over all heads.
type journalCheck struct {
	call
	client                            *client.Client
	sealer                            *journal.Sealer // nil: seals are not checked
	now                               time.Time
	hours, expired, records, problems int
}

func runJournalCheck(ctx context.Context, c call) error {
	if c.heads == "" {
		return app.Usagef("--heads is missing: name the log of an aggregator")
	}
	heads, err := readHeads(c.heads)
	if err != nil {
		return err
	}
	check := &journalCheck{call: c, now: time.Now()}
	if c.journalKey != "" {
		key, err := os.ReadFile(c.journalKey)
		if err != nil {
			return err
		}
		if check.sealer, err = journal.NewSealer(bytes.TrimSpace(key)); err != nil {
			return err
		}
	}
	if check.client, err = c.client(); err != nil {
		return err
	}
	for _, head := range heads {
		if err := check.hour(ctx, head); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.stderr, "%d records of %d hours, %d hours expired\n", check.records, check.hours, check.expired)
	if check.problems > 0 {
		return &inconsistent{fmt.Sprintf("%d problems", check.problems)}
	}
	return nil
}

// readHeads returns the heads of a log, each hour once and the first one of each. Two different heads of an
// hour are a problem of the hour: one of them is wrong.
func readHeads(file string) (heads []journal.Head, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	seen := make(map[string]bool)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		head, ok, err := journal.ParseHead(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, n, err)
		}
		if id := fmt.Sprint(head.Hour.Unix(), head.Records, head.Digest); ok && !seen[id] {
			seen[id] = true
			heads = append(heads, head)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(heads) == 0 {
		return nil, fmt.Errorf("%s has no heads of a journal: it must be the log of an aggregator with --journal-key, which writes the first one an hour after its start", file)
	}
	return heads, nil
}

func (j *journalCheck) problem(kind, what, detail string) {
	j.problems++
	fmt.Fprintf(j.stdout, "%s\t%s\t%s\n", kind, what, plain(detail))
}

// hour reads the records of one hour, and compares them with its head.
func (j *journalCheck) hour(ctx context.Context, want journal.Head) error {
	if !want.Until.IsZero() && !want.Until.After(j.now) {
		j.expired++
		return nil
	}
	j.hours++
	made := journal.NewHeading(want.Hour)
	query := url.Values{"from": {want.Hour.UTC().Format(time.RFC3339)}, "to": {want.Hour.Add(time.Hour).UTC().Format(time.RFC3339)}}
	for {
		answer, err := j.client.Do(ctx, client.Request{Path: "/v1/journal/records", Query: query})
		if err != nil {
			return err
		}
		var page struct {
			Records []struct {
				Key      string    `json:"key"`
				ExpireAt time.Time `json:"expire_at"`
				Data     []byte    `json:"data"`
			} `json:"records"`
			Next string `json:"next"`
		}
		if err := json.Unmarshal(answer, &page); err != nil || page.Records == nil {
			return fmt.Errorf("the server answered with something else than records; is that a countmill?")
		}
		for _, r := range page.Records {
			place, err := store.ParseJournalPlace("key", r.Key)
			if err != nil {
				return err
			}
			made.Add(place.Key, r.ExpireAt, j.record(place, r.Data))
		}
		if page.Next == "" {
			break
		}
		query.Set("after", page.Next)
	}
	if got := made.Head(); got.Records != want.Records {
		j.problem("hour", want.Hour.UTC().Format(time.RFC3339), fmt.Sprintf("%d records, and its head has %d", got.Records, want.Records))
	} else if got.Digest != want.Digest {
		j.problem("hour", want.Hour.UTC().Format(time.RFC3339), "its records are not those of its head")
	}
	return nil
}

// record checks one record, and returns the part that the head of its hour has.
func (j *journalCheck) record(place store.JournalPlace, data []byte) *journal.Record {
	j.records++
	r, err := journal.Decode(data)
	switch {
	case err != nil:
		j.problem("unreadable", place.String(), err.Error())
	case !r.Sealed:
		j.problem("unsealed", place.String(), "the record has no seal")
	case j.sealer == nil:
	default:
		if err := j.sealer.Check(&r, place.Key); err != nil {
			j.problem("changed", place.String(), "the record "+err.Error())
		}
	}
	return &r
}

func runJournalErase(ctx context.Context, c call) error {
	if err := checkNames(c.args, 1); err != nil {
		return err
	}
	if !c.yes {
		return app.Usagef("erased entries cannot be restored: add --yes to erase the entries of %q", c.args[0])
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	erased, request := 0, map[string]any{"counter": c.args[0]}
	for {
		answer, err := cl.Do(ctx, client.Request{Method: http.MethodPost, Path: "/v1/journal/erase", Body: body(request), Safe: true})
		if err != nil {
			return err
		}
		var got struct {
			Erased  int    `json:"erased"`
			Next    string `json:"next"`
			Settled string `json:"settled_until"`
		}
		if err := json.Unmarshal(answer, &got); err != nil || got.Settled == "" {
			return fmt.Errorf("the server answered with something else than a count of erased entries; is that a countmill?")
		}
		if erased += got.Erased; got.Next == "" {
			fmt.Fprintf(c.stdout, "%d entries erased, up to %s\n", erased, plain(got.Settled))
			return nil
		}
		request["after"] = got.Next
	}
}
