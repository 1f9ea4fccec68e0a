package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

// maxDeadKeys is the most letters of one POST /v1/dead-letters/replay or discard.
const maxDeadKeys = 100

// A deadOutcome is what became of one letter.
type deadOutcome struct {
	Key    string `json:"key"`
	Result string `json:"result"`
	Why    string `json:"why"`
	New    bool   `json:"as_new"`
	Twice  bool   `json:"maybe_counted_before"`
}

// A deadTally counts what became of letters.
type deadTally struct{ asked, refused, gone, discarded, removed int }

// errNoLetters: --all means none.
var errNoLetters = errors.New("no dead letters")

type deadReplayVerb struct{ dead }

func (d *deadReplayVerb) Flags() []cli.Flag {
	return d.flags(usual, oneAnswer, d.allFlag(),
		cli.Switch("as-new", &d.asNew, "Count dead letters as new whose ids are forgotten, lost or taken."), d.yesFlag())
}

func (d *deadReplayVerb) Run(ctx context.Context) error {
	if err := d.chosen(); err != nil {
		return err
	}
	if d.all || d.asNew {
		if err := d.sure(ctx, "Replay"); err != nil {
			return d.orNone(err)
		}
	}
	asked := map[string]any{}
	if d.asNew {
		asked["as_new"] = true
	}
	t, err := d.act(ctx, "/v1/dead-letters/replay", asked)
	if err != nil {
		return d.orNone(d.soFar(t, err))
	}
	if t.asked > 0 && !d.json {
		fmt.Fprintf(d.stderr, "%d to be counted by an aggregator within half a minute or so; `countmill dead list` shows the rest\n", t.asked)
	}
	if t.refused > 0 {
		return fmt.Errorf("%d of %d letters cannot be replayed like that", t.refused, t.asked+t.refused)
	}
	return nil
}

type deadDiscardVerb struct{ dead }

func (d *deadDiscardVerb) Flags() []cli.Flag {
	return d.flags(usual, oneAnswer, d.allFlag(), d.yesFlag())
}

func (d *deadDiscardVerb) Run(ctx context.Context) error {
	if err := d.chosen(); err != nil {
		return err
	}
	if err := d.sure(ctx, "Remove uncounted, for good,"); err != nil {
		return d.orNone(err)
	}
	t, err := d.act(ctx, "/v1/dead-letters/discard", map[string]any{})
	return d.orNone(d.soFar(t, err))
}

// orNone: without dead letters all of them are done, and standard error says so.
func (d *dead) orNone(err error) error {
	if !errors.Is(err, errNoLetters) {
		return err
	}
	if d.json {
		return nil
	}
	_, err = fmt.Fprintln(d.stderr, errNoLetters)
	return err
}

// soFar says how far it came before an error. A repeat does no harm.
func (d *dead) soFar(t deadTally, err error) error {
	if err == nil || t == (deadTally{}) {
		return err
	}
	return fmt.Errorf("after %s: %w; repeat it: nothing is done twice", t, err)
}

func (t deadTally) String() string {
	return fmt.Sprintf("%d letters", t.asked+t.refused+t.gone+t.discarded+t.removed)
}

// sure lets a person confirm, and says what there is to lose.
func (d *dead) sure(ctx context.Context, verb string) error {
	if d.yes {
		return nil
	}
	if d.person == nil {
		return cli.Confirm(d.person, d.stderr, verb+" dead letters?")
	}
	letters, unknown := 0, 0
	err := d.countLetters(ctx, func(page []deadLetter) {
		for _, l := range page {
			letters++
			if l.Applied != "no" {
				unknown++
			}
		}
	})
	if err != nil {
		return err
	}
	if letters == 0 {
		return errNoLetters
	}
	question := fmt.Sprintf("%s %d dead letters?", verb, letters)
	if d.asNew && unknown > 0 {
		question = fmt.Sprintf("%d of them were maybe counted (applied: unknown). Those whose ids are forgotten or lost may then count twice. %s", unknown, question)
	}
	return cli.Confirm(d.person, d.stderr, question)
}

// countLetters calls count with the letters that are meant.
func (d *dead) countLetters(ctx context.Context, count func([]deadLetter)) error {
	if d.all {
		return d.pages(ctx, 0, func(_ []byte, page []deadLetter) error { count(page); return nil })
	}
	for _, key := range d.args {
		raw, err := d.client.Do(ctx, client.Request{Path: "/v1/dead-letters/" + url.PathEscape(key)})
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		var l deadLetter
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("%s: the server answered with no dead letter: %w", key, err)
		}
		count([]deadLetter{l})
	}
	return nil
}

// act posts the keys, or those of all letters, in lots.
func (d *dead) act(ctx context.Context, path string, asked map[string]any) (t deadTally, err error) {
	post := func(lot []string) error {
		asked["keys"] = lot
		err := d.post(ctx, path, asked, &t)
		if cli.IsTerminal(d.stderr) {
			fmt.Fprintf(d.stderr, "\r%s", t)
		}
		return err
	}
	if cli.IsTerminal(d.stderr) {
		defer fmt.Fprintln(d.stderr)
	}
	if !d.all {
		for from := 0; from < len(d.args); from += maxDeadKeys {
			if err := post(d.args[from:min(from+maxDeadKeys, len(d.args))]); err != nil {
				return t, err
			}
		}
		return t, nil
	}
	found := false
	err = d.pages(ctx, 0, func(_ []byte, page []deadLetter) error {
		if len(page) == 0 {
			return nil
		}
		found = true
		lot := make([]string, len(page))
		for i, l := range page {
			lot[i] = l.Key
		}
		return post(lot)
	})
	if err == nil && !found {
		err = errNoLetters
	}
	return t, err
}

func (d *dead) post(ctx context.Context, path string, asked any, t *deadTally) error {
	answer, err := d.client.Do(ctx, client.Request{Method: http.MethodPost, Path: path, Body: body(asked)})
	if err != nil {
		return err
	}
	var got struct {
		Letters []deadOutcome `json:"letters"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Letters == nil {
		return fmt.Errorf("the server answered with something else than letters; is that a countmill?")
	}
	for _, o := range got.Letters {
		t.add(o)
		switch {
		case o.Result == "gone":
			o.Why = "it was counted or discarded, or never there"
		case o.Twice:
			o.Why = "as new; it may have been counted before, and would count twice"
		case o.New:
			o.Why = "as new"
		}
		if !d.json {
			fmt.Fprintln(d.stdout, strings.TrimSuffix(cli.Plain(o.Key)+"\t"+cli.Plain(o.Result)+": "+cli.Plain(o.Why), ": "))
		}
	}
	if d.json {
		_, err = d.stdout.Write(answer)
	}
	return err
}

func (t *deadTally) add(o deadOutcome) {
	switch o.Result {
	case "asked":
		t.asked++
	case "refused":
		t.refused++
	case "discarded":
		t.discarded++
	case "removed":
		t.removed++
	default:
		t.gone++
	}
}
