package httpapi

// A totalsRequest names counters.
type totalsRequest struct {
	Counters texts `json:"counters"`
}

func (a *API) totals(c call) (any, error) {
	counters := c.params.All("counter")
	if err := checkCount("counter", len(counters), MaxQuery); err != nil {
		return nil, err
	}
	return a.readTotals(c, counters)
}

func (a *API) manyTotals(c call) (any, error) {
	counters := c.body.(*totalsRequest).Counters
	if err := checkCount("counters", len(counters), MaxBodyCounters); err != nil {
		return nil, err
	}
	return a.readTotals(c, counters)
}

func (a *API) counter(c call) (any, error) {
	answer, err := a.readTotals(c, []string{c.name()})
	if err != nil {
		return nil, err
	}
	return (*counter)(answer), nil
}

func (a *API) readTotals(c call, counters []string) (*totals, error) {
	maxStaleness, err := staleness(c.params)
	if err != nil {
		return nil, err
	}
	quoted, err := asString(c.params)
	if err != nil {
		return nil, err
	}
	if err := c.caller().CheckAll(counters); err != nil {
		return nil, err
	}
	ts, err := a.services.Reader.Totals(c.ctx, counters, maxStaleness)
	if err != nil {
		return nil, sayWhichCounter(err)
	}
	return &totals{ts, quoted, lagOf(a.services.Reader.Pipeline(c.ctx))}, nil
}
