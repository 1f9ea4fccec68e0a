package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
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
  countmill journal check --key journal.key                      the seals of all records

Without --heads nothing shows that a record is missing.

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

NAME is one counter. Recounts of its prefix begin at a new opening balance: run
"countmill recount PREFIX" before, and "countmill recount PREFIX --opening" after.

  countmill journal erase user:42:orders --yes

Exit code 1 as well if there was nothing to erase.
`,
	run: runJournalErase,
}

// A journalCheck is one run over all heads.
type journalCheck struct {
	call
	client                              *client.Client
	sealer                              *journal.Sealer // nil: seals are not checked
	now                                 time.Time
	checked, expired, records, problems int
}

func runJournalCheck(ctx context.Context, c call) error {
	if c.heads == "" && c.journalKey == "" {
		return app.Usagef("--heads and --key are missing: name the log of an aggregator, the key of --journal-key, or both")
	}
	var heads []journal.Head
	var err error
	if c.heads != "" {
		if heads, err = readHeads(c.heads); err != nil {
			return err
		}
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
	if c.heads == "" {
		err = check.seals(ctx)
	} else {
		err = check.hours(ctx, heads)
	}
	if err != nil {
		return err
	}
	if check.problems > 0 {
		return &inconsistent{fmt.Sprintf("%d problems", check.problems)}
	}
	return nil
}

// seals checks the seals of all records. It does not know which records are missing.
func (j *journalCheck) seals(ctx context.Context) error {
	if err := j.each(ctx, url.Values{}, func(store.JournalPlace, time.Time, *journal.Record) {}); err != nil {
		return err
	}
	fmt.Fprintf(j.stderr, "%d records; without --heads nobody knows whether one is missing\n", j.records)
	return nil
}

// hours checks the hours that have heads.
func (j *journalCheck) hours(ctx context.Context, heads []journal.Head) error {
	for _, head := range heads {
		if err := j.hour(ctx, head); err != nil {
			return err
		}
	}
	fmt.Fprintf(j.stderr, "%d records of %d hours, %d hours expired\n", j.records, j.checked, j.expired)
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
		return nil, fmt.Errorf("%s has no heads of a journal: it must be the log of an aggregator with --journal-key, which writes the first one five minutes after its start", file)
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
	j.checked++ // an hour
	made := journal.NewHeading(want.Hour)
	query := url.Values{"from": {want.Hour.UTC().Format(time.RFC3339)}, "to": {want.Hour.Add(time.Hour).UTC().Format(time.RFC3339)}}
	if err := j.each(ctx, query, func(place store.JournalPlace, expireAt time.Time, r *journal.Record) {
		made.Add(place.Key, expireAt, r)
	}); err != nil {
		return err
	}
	if got := made.Head(); got.Records != want.Records {
		j.problem("hour", want.Hour.UTC().Format(time.RFC3339), fmt.Sprintf("%d records, and its head has %d", got.Records, want.Records))
	} else if got.Digest != want.Digest {
		j.problem("hour", want.Hour.UTC().Format(time.RFC3339), "its records are not those of its head")
	}
	return nil
}

// each checks the records of a query, and visits them.
func (j *journalCheck) each(ctx context.Context, query url.Values, visit func(store.JournalPlace, time.Time, *journal.Record)) error {
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
			visit(place, r.ExpireAt, j.record(place, r.Data))
		}
		if page.Next == "" {
			return nil
		}
		query.Set("after", page.Next)
	}
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
	erased, others, request := 0, 0, map[string]any{"counter": c.args[0]}
	for {
		answer, err := cl.Do(ctx, client.Request{Method: http.MethodPost, Path: "/v1/journal/erase", Body: body(request), Safe: true})
		if err != nil {
			return err
		}
		var got struct {
			Erased  int    `json:"erased"`
			Others  int    `json:"others"`
			Next    string `json:"next"`
			Settled string `json:"settled_until"`
		}
		if err := json.Unmarshal(answer, &got); err != nil || got.Settled == "" {
			return fmt.Errorf("the server answered with something else than a count of erased entries; is that a countmill?")
		}
		erased, others = erased+got.Erased, others+got.Others
		if got.Next == "" {
			return c.reportErased(erased, others, plain(got.Settled))
		}
		request["after"] = got.Next
	}
}

// reportErased says what was erased. Nothing is an error: the name may be wrong, and its owner waits for the erasure. An
// earlier run may have erased all, and so may a call of this one whose answer was lost.
func (c call) reportErased(erased, others int, settled string) error {
	if erased+others == 0 {
		text := fmt.Sprintf("there was nothing to erase: the journal has no entries of the counter %q up to %s, or no more of them", c.args[0], settled)
		if strings.HasSuffix(c.args[0], "*") {
			text += "; name one counter, and no pattern"
		}
		return errors.New(text)
	}
	with := ""
	if others > 0 {
		with = fmt.Sprintf(", and %d opening balances and corrections", others)
	}
	_, err := fmt.Fprintf(c.stdout, "%s erased%s, up to %s\n", counted(erased, "entry"), with, settled)
	return err
}
