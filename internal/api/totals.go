package api

import (
	"errors"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/wire"
)

// A totalsRequest names counters, and groups without their first character.
type totalsRequest struct {
	Counters texts `json:"counters,omitzero" schema:"CounterName #..1000"`
	// Groups without their `=`, which come after the counters. Both together name 1 to 1,000.
	Groups texts `json:"groups,omitzero" schema:"GroupName #..1000"`
}

func (a *API) totals(c call) (any, error) {
	counters, err := namesOf(c.params.Values["counter"], "group", c.params.Values["group"])
	if err != nil {
		return nil, err
	}
	if err := checkCount("counter", len(counters), maxQuery); err != nil {
		return nil, err
	}
	return a.readTotals(c, counters)
}

func (a *API) manyTotals(c call) (any, error) {
	request := c.body.(*totalsRequest)
	counters, err := namesOf(request.Counters, "groups", request.Groups)
	if err != nil {
		return nil, err
	}
	if err := checkCount("counters", len(counters), maxBodyCounters); err != nil {
		return nil, err
	}
	return a.readTotals(c, counters)
}

func (a *API) counter(c call) (any, error) {
	answer, err := a.readTotals(c, []string{c.name()})
	if err != nil {
		return nil, err
	}
	if answer.totals[0].Overflow {
		return nil, &reader.OverflowError{Counter: c.name()}
	}
	return (*counter)(answer), nil
}

func (a *API) readTotals(c call, counters []string) (*totals, error) {
	maxStaleness, minAsOf, err := freshness(c.params)
	if err != nil {
		return nil, err
	}
	quoted := c.quoted()
	if err := c.caller().CheckAll(counters); err != nil {
		return nil, err
	}
	if c.params.Has("after") || c.params.Has("wait") {
		return a.totalsAfter(c, counters, minAsOf, quoted)
	}
	ts, err := a.services.Reader.TotalsSince(c.ctx, counters, maxStaleness, minAsOf)
	if withoutTotals(err) {
		return nil, err
	}
	return &totals{totals: ts, quoted: quoted, lag: lagOf(a.services.Reader.Pipeline(c.ctx)), unseen: a.unseen()}, nil
}

// withoutTotals reports whether an error of the reader came without totals. A counter whose total does not fit 64 bits keeps no
// other one from its reader.
func withoutTotals(err error) bool { return err != nil && !errors.Is(err, countmill.ErrOverflow) }

// totalsAfter answers totals that contain the increments of a receipt. It reads the store, whatever
// age the caller accepts.
func (a *API) totalsAfter(c call, counters []string, minAsOf time.Time, quoted bool) (*totals, error) {
	receipt, wait, err := receiptParams(c.params)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		give, err := a.pools.take(receipts, sharesAs(c), 1)
		if err != nil {
			return nil, err
		}
		defer give()
	}
	after, err := a.services.Reader.TotalsAfter(c.ctx, counters, receipt, wait, minAsOf)
	if withoutTotals(err) {
		return nil, err
	}
	return &totals{totals: after.Totals, deadLetters: after.DeadLetters, after: true, quoted: quoted, lag: lagOf(a.services.Reader.Pipeline(c.ctx)), unseen: a.unseen()}, nil
}

func receiptParams(query httpserver.Params) (receipt wire.Receipt, wait time.Duration, err error) {
	if !query.Has("after") {
		return receipt, 0, &countmill.FieldError{Field: "wait", Problem: "is given without after", Limit: "only with a receipt in after"}
	}
	if receipt, err = wire.ParseReceipt(query.Get("after")); err != nil || !query.Has("wait") {
		return receipt, 0, err
	}
	wait, err = time.ParseDuration(query.Get("wait"))
	if err != nil || wait < 0 || wait > reader.MaxWait {
		return receipt, 0, &countmill.FieldError{Field: "wait", Problem: "is not a duration in range", Limit: "0s to " + reader.MaxWait.String()}
	}
	return receipt, wait, nil
}
