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
	Version int64  `json:"version"`
	Series  []rule `json:"series"`
	Journal []rule `json:"journal"`
}

type rule struct {
	Pattern    string  `json:"pattern"`
	Keep       string  `json:"keep"`
	Begin      string  `json:"begin"`
	Ended      *string `json:"ended"`
	FilledFrom *string `json:"filled_from"`
	FilledTo   *string `json:"filled_to"`
}

func rulesOf(set store.Settings) rules {
	if set.Rules == nil {
		set.Rules = new(store.Rules)
	}
	return rules{Version: set.Version, Series: shownRules(set.Rules.Series), Journal: shownRules(set.Rules.Journal)}
}

func shownRules(all []store.Rule) []rule {
	shown := make([]rule, len(all))
	for i, r := range all {
		begin := r.Since.UTC().Format(time.RFC3339)
		shown[i] = rule{r.Pattern, r.Keep.String(), begin, secondOrNull(r.Ended), secondOrNull(r.Filled.From), secondOrNull(r.Filled.To)}
	}
	return shown
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

// addRule answers additions of rules of a kind.
func addRule(kind store.RuleKind) func(*API, call) (any, error) {
	return func(a *API, c call) (any, error) {
		request := c.body.(*ruleRequest)
		switch {
		case !request.Pattern.given:
			return nil, ruleBodies[kind].missing("pattern")
		case !request.Keep.given:
			return nil, ruleBodies[kind].missing("keep")
		}
		keep, err := store.ParseRetention(kind, request.Keep.value)
		if err != nil {
			return nil, err
		}
		set, err := a.services.Admin.AddRule(c.ctx, kind, request.Pattern.value, keep)
		if err != nil {
			return nil, asRuleProblem(err)
		}
		return rulesOf(set), nil
	}
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

// removeRule answers removals of rules of a kind.
func removeRule(kind store.RuleKind) func(*API, call) (any, error) {
	return func(a *API, c call) (any, error) {
		pattern := c.params.Get("pattern")
		if err := store.CheckPattern(pattern); err != nil {
			return nil, err
		}
		set, err := a.services.Admin.RemoveRule(c.ctx, kind, pattern)
		if err != nil {
			return nil, asRuleProblem(err)
		}
		return rulesOf(set), nil
	}
}

// asRuleProblem names the reason why no rule was changed.
func asRuleProblem(err error) error {
	if errors.Is(err, store.ErrNoRule) {
		return httpserver.NewProblem(http.StatusNotFound, "no-rule", "no rule", err.Error())
	}
	return asChange(err)
}
