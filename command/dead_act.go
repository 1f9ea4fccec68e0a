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

// errNoDeadLetters: --all means none.
var errNoDeadLetters = errors.New("no dead letters")

func (d *dead) replay(ctx context.Context, keys []string) error {
	if d.all || d.asNew {
		if err := d.ask(ctx, keys, "Replay"); err != nil {
			return d.orNone(err)
		}
	}
	asked := map[string]any{}
	if d.asNew {
		asked["as_new"] = true
	}
	t, err := d.act(ctx, keys, "/v1/dead-letters/replay", asked)
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

func (d *dead) discard(ctx context.Context, keys []string) error {
	if err := d.ask(ctx, keys, "Remove uncounted, for good,"); err != nil {
		return d.orNone(err)
	}
	t, err := d.act(ctx, keys, "/v1/dead-letters/discard", map[string]any{})
	return d.orNone(d.soFar(t, err))
}

// orNone: without dead letters all of them are done, and standard error says so.
func (d *dead) orNone(err error) error {
	if !errors.Is(err, errNoDeadLetters) {
		return err
	}
	if d.json {
		return nil
	}
	_, err = fmt.Fprintln(d.stderr, errNoDeadLetters)
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

// ask lets a person confirm, and says what there is to lose.
func (d *dead) ask(ctx context.Context, keys []string, verb string) error {
	if d.yes {
		return nil
	}
	if d.person == nil {
		return d.confirm(verb + " dead letters?")
	}
	letters, unknown := 0, 0
	err := d.countDeadLetters(ctx, keys, func(page []deadLetter) {
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
		return errNoDeadLetters
	}
	question := fmt.Sprintf("%s %d dead letters?", verb, letters)
	if d.asNew && unknown > 0 {
		question = fmt.Sprintf("%d of them were maybe counted (applied: unknown). Those whose ids are forgotten or lost may then count twice. %s", unknown, question)
	}
	return d.confirm(question)
}

// countDeadLetters calls count with the letters that are meant.
func (d *dead) countDeadLetters(ctx context.Context, keys []string, count func([]deadLetter)) error {
	if d.all {
		return d.pages(ctx, 0, func(_ []byte, page []deadLetter) error { count(page); return nil })
	}
	for _, key := range keys {
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
func (d *dead) act(ctx context.Context, keys []string, path string, asked map[string]any) (t deadTally, err error) {
	post := func(lot []string) error {
		asked["keys"] = lot
		err := d.post(ctx, path, asked, &t)
		if isTerminal(d.stderr) {
			fmt.Fprintf(d.stderr, "\r%s", t)
		}
		return err
	}
	if isTerminal(d.stderr) {
		defer fmt.Fprintln(d.stderr)
	}
	if !d.all {
		for from := 0; from < len(keys); from += maxDeadKeys {
			if err := post(keys[from:min(from+maxDeadKeys, len(keys))]); err != nil {
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
		err = errNoDeadLetters
	}
	return t, err
}

func (d *dead) post(ctx context.Context, path string, asked any, t *deadTally) error {
	answer, err := d.client.Do(ctx, client.Request{Method: http.MethodPost, Path: path, Body: body(asked)})
	if err != nil {
		return err
	}
	var got struct {
		DeadLetters []deadOutcome `json:"dead_letters"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.DeadLetters == nil {
		return fmt.Errorf("the server answered with something else than letters; is that a countmill?")
	}
	for _, o := range got.DeadLetters {
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
			fmt.Fprintln(d.stdout, strings.TrimSuffix(plain(o.Key)+"\t"+plain(o.Result)+": "+plain(o.Why), ": "))
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
