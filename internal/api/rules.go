package api

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/store"
)

// A ruleRequest is a rule for series or for the journal.
type ruleRequest struct {
	Pattern text `json:"pattern" schema:"Pattern"`
	Keep    text `json:"keep" schema:"Keep"`
}

// A journalRuleRequest differs in what KEEP is.
type journalRuleRequest struct {
	Pattern text `json:"pattern" schema:"Pattern"`
	Keep    text `json:"keep" schema:"JournalKeep"`
}

// rulesOf are the rules as clients see them: their moments are seconds.
func rulesOf(set store.Settings) any {
	if set.Rules == nil {
		set.Rules = new(store.Rules)
	}
	all := client.Rules{Version: set.Version, Series: shownRules(set.Rules.Series), Journal: shownRules(set.Rules.Journal)}
	return httpserver.Formatted{Value: all, Options: json.WithMarshalers(nil)}
}

func shownRules(all []store.Rule) []client.Rule {
	shown := make([]client.Rule, len(all))
	for i, r := range all {
		shown[i] = client.Rule{Pattern: r.Pattern, Keep: r.Keep.String(), Begin: second(r.Since), Ended: orNull(second(r.Ended)),
			FilledFrom: orNull(second(r.Filled.From)), FilledTo: orNull(second(r.Filled.To))}
	}
	return shown
}

func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// orNull is null for the zero time.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (a *API) rules(c call) (any, error) {
	set, err := a.services.Admin.Rules(c.ctx)
	return rulesOf(set), err
}

// addRule answers additions of rules of a kind.
func addRule(kind store.RuleKind) func(*API, call) (any, error) {
	return func(a *API, c call) (any, error) {
		request, ok := c.body.(*ruleRequest)
		if !ok {
			request = (*ruleRequest)(c.body.(*journalRuleRequest))
		}
		keep, err := store.ParseRetention(kind, request.Keep.value)
		if err != nil {
			return nil, err
		}
		set, err := a.services.Admin.AddRule(c.ctx, kind, request.Pattern.value, keep)
		return rulesOf(set), err
	}
}

// A filledRequest names a period that an import made complete.
type filledRequest struct {
	Pattern text `json:"pattern" schema:"Pattern"`
	// The first moment of the period.
	From text `json:"from" schema:"date-time"`
	// The moment after the period; not in the future.
	To text `json:"to" schema:"date-time"`
}

func (a *API) fillSeriesRule(c call) (any, error) {
	request := c.body.(*filledRequest)
	var filled store.Period
	for _, end := range []struct {
		field string
		text  text
		to    *time.Time
	}{{"from", request.From, &filled.From}, {"to", request.To, &filled.To}} {
		at, err := time.Parse(time.RFC3339, end.text.value)
		if err != nil || at.IsZero() {
			return nil, &countmill.FieldError{Field: end.field, Problem: "is not a time", Limit: "as in RFC 3339, such as 2006-01-02T15:04:05Z"}
		}
		*end.to = at.UTC().Truncate(time.Second)
	}
	set, err := a.services.Admin.FillSeries(c.ctx, request.Pattern.value, filled)
	return rulesOf(set), err
}

// removeRule answers removals of rules of a kind.
func removeRule(kind store.RuleKind) func(*API, call) (any, error) {
	return func(a *API, c call) (any, error) {
		pattern := c.params.Get("pattern")
		if err := store.CheckPattern(pattern); err != nil {
			return nil, err
		}
		set, err := a.services.Admin.RemoveRule(c.ctx, kind, pattern)
		return rulesOf(set), err
	}
}
