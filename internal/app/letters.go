package app

import (
	"context"
	"errors"
	"net/http"

	"github.com/countmill/countmill/admin/letters"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/api"
	safe "github.com/countmill/countmill/store"
)

// A morgue is the store as package letters sees it: the copies by which replays are asked
// for are no letters there.
type morgue struct{ store store }

func (m morgue) Page(ctx context.Context, after string, limit int) ([]letters.Letter, error) {
	var page []letters.Letter
	for {
		dead, err := m.store.Dead(ctx, after, limit-len(page))
		if err != nil {
			return nil, forbidden(err)
		}
		copies := 0
		for _, d := range dead {
			if _, asked := aggregator.AskedFor(d.Key); asked {
				copies++
				continue
			}
			page = append(page, letterOf(d))
		}
		if copies == 0 || len(dead) == 0 {
			return m.markAsked(ctx, page)
		}
		after = max(aggregator.AskedEnd, dead[len(dead)-1].Key)
	}
}

func (m morgue) Find(ctx context.Context, keys []string) ([]letters.Letter, error) {
	var plain []string
	for _, key := range keys {
		if _, asked := aggregator.AskedFor(key); !asked {
			plain = append(plain, key)
		}
	}
	dead, err := m.store.DeadByKey(ctx, plain)
	if err != nil {
		return nil, forbidden(err)
	}
	found := make([]letters.Letter, len(dead))
	for i, d := range dead {
		found[i] = letterOf(d)
	}
	return m.markAsked(ctx, found)
}

func letterOf(d aggregator.Dead) letters.Letter {
	return letters.Letter{
		Key: d.Key, Payload: d.Payload, Source: d.Source, Time: d.Time, Reason: d.Reason, Maybe: d.Maybe, Taken: d.IDTaken(), At: d.At,
	}
}

// markAsked looks up which letters a replay was asked for.
func (m morgue) markAsked(ctx context.Context, page []letters.Letter) ([]letters.Letter, error) {
	keys := make([]string, len(page))
	for i := range page {
		keys[i] = aggregator.AskKey(page[i].Key)
	}
	copies, err := m.store.DeadByKey(ctx, keys)
	if err != nil {
		return nil, forbidden(err)
	}
	asked := make(map[string]bool, len(copies))
	for _, d := range copies {
		asked[d.Key] = true
	}
	for i := range page {
		page[i].Asked = asked[keys[i]]
	}
	return page, nil
}

func (m morgue) Ask(ctx context.Context, l letters.Letter) error {
	return forbidden(m.store.Bury(ctx, []aggregator.Dead{{
		Key: aggregator.AskKey(l.Key), Payload: l.Payload, Source: l.Source, Time: l.Time, Reason: l.Reason, Maybe: l.Maybe, At: l.At,
	}}))
}

// Discard takes the wish back first: without its letter it would still be granted.
func (m morgue) Discard(ctx context.Context, keys []string) error {
	asked := make([]string, len(keys))
	for i, key := range keys {
		asked[i] = aggregator.AskKey(key)
	}
	return forbidden(m.store.Discard(ctx, append(asked, keys...)))
}

func (m morgue) Settings(ctx context.Context) (safe.Settings, error) {
	checked, err := m.store.Check(ctx)
	return checked.Settings, forbidden(err)
}

// forbidden says who has to act where the store refuses this process.
func forbidden(err error) error {
	if !errors.Is(err, aggregator.ErrDeployment) {
		return err
	}
	p := api.NewProblem(http.StatusServiceUnavailable, "unavailable", "unavailable",
		"the store does not let this process do that; ask an aggregator, or give it the right to write: "+err.Error())
	p.Header = http.Header{"Retry-After": {"60"}}
	return p
}
