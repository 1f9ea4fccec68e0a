package httpapi

import (
	"context"
	"math"

	"github.com/countmill/countmill/internal/api"
)

// An overview is the state of the whole pipeline as its page shows it. Rates are those of all
// aggregators together, by their last two heartbeats; null while that is unknown.
type overview struct {
	Roles       []string `json:"roles"`
	Aggregators int      `json:"aggregators"`
	Status      string   `json:"status"`
	Lag         *float64 `json:"lag"`

	Increments *float64 `json:"increments_per_second"`
	Commits    *float64 `json:"commits_per_second"`
	PerWrite   *float64 `json:"increments_per_write"`

	SinceStart sinceStart `json:"since_start"`
	LastBackup *string    `json:"last_backup"`
	Busiest    []busy     `json:"busiest"`
}

// sinceStart are counts since the aggregators that are alive started.
type sinceStart struct {
	Increments  int64    `json:"increments"`
	Writes      int64    `json:"writes"`
	PerWrite    *float64 `json:"increments_per_write"`
	Duplicates  int64    `json:"duplicates"`
	DeadLetters int64    `json:"dead_letters"`
}

type busy struct {
	Counter string  `json:"counter"`
	Rate    float64 `json:"moved_per_second"`
}

// overview reads the aggregators' heartbeats, which readers share and keep for some seconds: no
// caller causes a scan of the store.
func (a *API) overview(c call) (any, error) {
	p := a.services.Reader.Pipeline(c.ctx)
	o := overview{
		Roles: a.cfg.Roles, Aggregators: p.Workers, Status: a.statusOf(c.ctx), Lag: lagOf(p), Busiest: []busy{},
		SinceStart: sinceStart{p.Folded, p.Written, ratio(float64(p.Folded), float64(p.Written)), p.Duplicates, p.DeadLetters},
	}
	if p.RatesKnown {
		o.Increments, o.Commits, o.PerWrite = rounded(p.Increments), rounded(p.Commits), ratio(p.Increments, p.Entities)
	}
	if a.services.LastBackup != nil {
		if last := a.services.LastBackup(); !last.IsZero() {
			text := api.FormatTime(last)
			o.LastBackup = &text
		}
	}
	for _, b := range a.services.Reader.Busiest(c.ctx) {
		if c.caller().Check(b.Counter) == nil {
			o.Busiest = append(o.Busiest, busy{b.Counter, *rounded(b.Rate)})
		}
	}
	return o, nil
}

// statusOf is that of /readyz in a word. The reason is for callers of /readyz.
func (a *API) statusOf(ctx context.Context) string {
	if a.services.Ready == nil {
		return "ready"
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	switch degraded, err := a.services.Ready(ctx); {
	case err != nil:
		return "not ready"
	case degraded != "":
		return "degraded"
	}
	return "ready"
}

// ratio is null if nothing was written.
func ratio(increments, written float64) *float64 {
	if written == 0 {
		return nil
	}
	return rounded(increments / written)
}

// rounded keeps three decimals: the rest is noise.
func rounded(v float64) *float64 {
	v = math.Round(v*1000) / 1000
	return &v
}
