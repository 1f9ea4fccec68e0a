package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/store"
)

// A ruleRequest is a rule for series or for the journal.
type ruleRequest struct {
	Pattern text `json:"pattern"`
	Keep    text `json:"keep"`
}

// rules as clients see them.
type rules struct {
	Version int64        `json:"version"`
	Series  []seriesRule `json:"series"`
	Journal []rule       `json:"journal"`
}

type seriesRule struct {
	rule
	FilledFrom *string `json:"filled_from"`
	FilledTo   *string `json:"filled_to"`
}

type rule struct {
	Pattern string  `json:"pattern"`
	Keep    string  `json:"keep"`
	Begin   string  `json:"begin"`
	Ended   *string `json:"ended"`
}

func rulesOf(set store.Settings) rules {
	shown := rules{Version: set.Version, Series: []seriesRule{}, Journal: journalRulesOf(set.Rules)}
	if set.Rules == nil {
		return shown
	}
	for _, r := range set.Rules.Series {
		shown.Series = append(shown.Series, seriesRule{
			ruleOf(r.Pattern, r.Keep.String(), r.Since, r.Ended), secondOrNull(r.Filled.From), secondOrNull(r.Filled.To),
		})
	}
	return shown
}

// ruleOf is a rule as clients see it.
func ruleOf(pattern, keep string, since, ended time.Time) rule {
	return rule{Pattern: pattern, Keep: keep, Begin: since.UTC().Format(time.RFC3339), Ended: secondOrNull(ended)}
}

// secondOrNull is null for the zero time.
func secondOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format(time.RFC3339)
	return &text
}

func (a *API) rules(c call) (any, error) {
	set, err := a.services.Admin.Rules(c.ctx)
	if err != nil {
		return nil, err
	}
	return rulesOf(set), nil
}

func (a *API) addSeriesRule(c call) (any, error) {
	request := c.body.(*ruleRequest)
	switch {
	case !request.Pattern.given:
		return nil, ruleBody.missing("pattern")
	case !request.Keep.given:
		return nil, ruleBody.missing("keep")
	}
	keep, err := store.ParseRetention(request.Keep.value)
	if err != nil {
		return nil, err
	}
	set, err := a.services.Admin.AddSeries(c.ctx, request.Pattern.value, keep)
	if err != nil {
		return nil, asRuleProblem(err)
	}
	return rulesOf(set), nil
}

// A filledRequest names a period that an import made complete.
type filledRequest struct {
	Pattern text `json:"pattern"`
	From    text `json:"from"`
	To      text `json:"to"`
}

func (a *API) fillSeriesRule(c call) (any, error) {
	request := c.body.(*filledRequest)
	if !request.Pattern.given {
		return nil, filledBody.missing("pattern")
	}
	var filled store.Period
	for _, end := range []struct {
		field string
		text  text
		to    *time.Time
	}{{"from", request.From, &filled.From}, {"to", request.To, &filled.To}} {
		if !end.text.given {
			return nil, filledBody.missing(end.field)
		}
		at, err := time.Parse(time.RFC3339, end.text.value)
		if err != nil || at.IsZero() {
			return nil, &countmill.FieldError{Field: end.field, Problem: "is not a time", Limit: "as in RFC 3339, such as 2006-01-02T15:04:05Z"}
		}
		*end.to = at.UTC().Truncate(time.Second)
	}
	set, err := a.services.Admin.FillSeries(c.ctx, request.Pattern.value, filled)
	if err != nil {
		return nil, asRuleProblem(err)
	}
	return rulesOf(set), nil
}

func (a *API) removeSeriesRule(c call) (any, error) {
	pattern := c.params.Get("pattern")
	if err := store.CheckPattern(pattern); err != nil {
		return nil, err
	}
	set, err := a.services.Admin.RemoveSeries(c.ctx, pattern)
	if err != nil {
		return nil, asRuleProblem(err)
	}
	return rulesOf(set), nil
}

// asRuleProblem names the reason why no rule was changed.
func asRuleProblem(err error) error {
	if errors.Is(err, store.ErrNoRule) {
		return httpserver.NewProblem(http.StatusNotFound, "no-rule", "no rule", err.Error())
	}
	return asChange(err)
}
