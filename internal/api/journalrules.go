package api

import "github.com/countmill/countmill/store"

var journalRuleBody = &body{
	empty: func() any { return new(ruleRequest) }, max: smallBody,
	want: `{"pattern": "billing:*", "keep": "400d"}`,
}

func journalRulesOf(set *store.Rules) []rule {
	shown := []rule{}
	if set == nil {
		return shown
	}
	for i := range set.Journal {
		r := &set.Journal[i]
		shown = append(shown, ruleOf(r.Pattern, r.Change().String(), r.Since, r.Ended))
	}
	return shown
}

func (a *API) addJournalRule(c call) (any, error) {
	request := c.body.(*ruleRequest)
	switch {
	case !request.Pattern.given:
		return nil, journalRuleBody.missing("pattern")
	case !request.Keep.given:
		return nil, journalRuleBody.missing("keep")
	}
	keep, err := store.ParseJournalKeep(request.Keep.value)
	if err != nil {
		return nil, err
	}
	set, err := a.services.Admin.AddJournal(c.ctx, request.Pattern.value, keep)
	if err != nil {
		return nil, asRuleProblem(err)
	}
	return rulesOf(set), nil
}

func (a *API) removeJournalRule(c call) (any, error) {
	pattern := c.params.Get("pattern")
	if err := store.CheckPattern(pattern); err != nil {
		return nil, err
	}
	set, err := a.services.Admin.RemoveJournal(c.ctx, pattern)
	if err != nil {
		return nil, asRuleProblem(err)
	}
	return rulesOf(set), nil
}
