package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/store"
)

// A ruleRequest is a rule for series or for the journal.
type ruleRequest struct {
	Pattern text `json:"pattern"`
	Keep    text `json:"keep"`
}

// rules as clients see them.
type rules struct {
	Version int64  `json:"version"`
	Series  []rule `json:"series"`
	Journal []rule `json:"journal"`
}

type rule struct {
	Pattern string  `json:"pattern"`
	Keep    string  `json:"keep"`
	Begin   string  `json:"begin"`
	Ended   *string `json:"ended"`
}

func rulesOf(set store.Settings) rules {
	shown := rules{Version: set.Version, Series: []rule{}, Journal: journalRulesOf(set.Rules)}
	if set.Rules == nil {
		return shown
	}
	for _, r := range set.Rules.Series {
		shown.Series = append(shown.Series, ruleOf(r.Pattern, r.Keep.String(), r.Since, r.Ended))
	}
	return shown
}

// ruleOf is a rule as clients see it.
func ruleOf(pattern, keep string, since, ended time.Time) rule {
	shown := rule{Pattern: pattern, Keep: keep, Begin: since.UTC().Format(time.RFC3339)}
	if !ended.IsZero() {
		text := ended.UTC().Format(time.RFC3339)
		shown.Ended = &text
	}
	return shown
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
		return api.NewProblem(http.StatusNotFound, "no-rule", "no rule", err.Error())
	}
	return asChange(err)
}
