package api

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/countmill/countmill/store"
)

// An overview is the state of the whole pipeline, for its page and for countmill status. Rates are
// those of all aggregators together, by their last two heartbeats; null while that is unknown.
type overview struct {
	Roles       []string `json:"roles"`
	Aggregators int      `json:"aggregators"`
	Status      string   `json:"status"`
	Lag         *float64 `json:"lag"`

	Increments *float64 `json:"increments_per_second"`
	Commits    *float64 `json:"commits_per_second"`
	PerWrite   *float64 `json:"increments_per_write"`

	AsOf   string `json:"as_of"`
	Unread bool   `json:"heartbeats_unread,omitzero"`

	inside
}

// inside is the part of an overview that is about the deployment, or about all counters. A caller that is limited to
// prefixes does not get it, nor rates: which of its counters are among the busiest depends on the others.
type inside struct {
	SinceStart     *sinceStart `json:"since_start,omitzero"`
	Busiest        []busy      `json:"busiest,omitzero"`
	AtLimit        []string    `json:"at_limit,omitzero"`
	LastDeadLetter string      `json:"last_dead_letter,omitzero"`

	Reason      string       `json:"reason,omitzero"`
	Fleet       []member     `json:"fleet,omitempty"`
	Late        []string     `json:"late,omitempty"`
	Differences []difference `json:"differences,omitempty"`
	Disk        *Disk        `json:"disk,omitzero"`
	LastBackup  string       `json:"last_backup,omitzero"`
	BackupEvery float64      `json:"backup_every,omitzero"`
	// Unbalanced is absent while it is unknown.
	Unbalanced *int `json:"journal_rules_without_balance,omitempty"`
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

// A member is an aggregator that is alive.
type member struct {
	ID         string  `json:"id"`
	Stalled    bool    `json:"stalled"`
	Lag        float64 `json:"lag"`
	Skew       float64 `json:"clock_skew"`
	LastCommit string  `json:"last_commit,omitzero"`
}

// mostMembers bounds the list of aggregators in an overview.
const mostMembers = 100

// A difference is a setting in which aggregators differ, and its values.
type difference struct {
	Setting string   `json:"setting"`
	Values  []string `json:"values"`
}

// overview reads the aggregators' heartbeats, which readers share and keep for some seconds: no
// caller causes a scan of the store.
func (a *API) overview(c call) (any, error) {
	p := a.services.Reader.Pipeline(c.ctx)
	status, reason := a.statusOf(c.ctx)
	o := overview{Roles: a.cfg.Roles, Aggregators: p.Workers, Status: status, Lag: lagOf(p), AsOf: timeText(time.Now()), Unread: p.Unread}
	if c.caller().Limited() {
		return o, nil
	}
	if p.RatesKnown {
		o.Increments, o.Commits, o.PerWrite = rounded(p.Increments), rounded(p.Commits), ratio(p.Increments, p.Entities)
	}
	o.inside = a.inside(a.services.Reader.Fleet(c.ctx), reason)
	o.Late = p.Late[:min(len(p.Late), mostMembers)]
	o.SinceStart = &sinceStart{p.Folded, p.Written, ratio(float64(p.Folded), float64(p.Written)), p.Duplicates, p.DeadLetters}
	for _, b := range a.services.Reader.Busiest(c.ctx) {
		o.Busiest = append(o.Busiest, busy{b.Counter, *rounded(b.Rate)})
	}
	return o, nil
}

func (a *API) inside(fleet []store.Worker, reason string) inside {
	in := inside{Busiest: []busy{}, AtLimit: atLimit(fleet), LastDeadLetter: lastDeadLetter(fleet), Reason: reason, Differences: differences(fleet)}
	for _, w := range fleet[:min(len(fleet), mostMembers)] {
		in.Fleet = append(in.Fleet, member{ID: w.ID, Stalled: w.Stalled, Lag: *rounded(w.Lag.Seconds()), Skew: *rounded(w.Skew.Seconds()), LastCommit: timeText(w.LastCommit)})
	}
	if a.services.Disk != nil {
		disk := a.services.Disk()
		in.Disk = &disk
	}
	if a.services.LastBackup != nil {
		in.LastBackup, in.BackupEvery = timeText(a.services.LastBackup()), a.services.BackupEvery.Seconds()
	}
	if a.services.Unbalanced != nil {
		if rules, known := a.services.Unbalanced(); known {
			in.Unbalanced = &rules
		}
	}
	return in
}

// timeText is empty for no time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return string(appendTime(nil, t))
}

func lastDeadLetter(fleet []store.Worker) string {
	var last time.Time
	for _, w := range fleet {
		if w.LastDeadLetter.After(last) {
			last = w.LastDeadLetter
		}
	}
	return timeText(last)
}

// atLimit are the counters that some aggregator could not give more shards.
func atLimit(fleet []store.Worker) []string {
	all := []string{}
	for _, w := range fleet {
		all = append(all, w.AtLimit...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), store.MaxAtLimit)]
}

// differences are the settings with several values, in the order of their names. An aggregator that
// has not said a setting does not differ in it.
func differences(fleet []store.Worker) []difference {
	values := make(map[string][]string)
	for _, w := range fleet {
		for setting, value := range w.Setup {
			if !slices.Contains(values[setting], value) {
				values[setting] = append(values[setting], value)
			}
		}
		if version := strconv.FormatInt(w.Settings, 10); w.Settings > 0 && !slices.Contains(values[settingsVersion], version) {
			values[settingsVersion] = append(values[settingsVersion], version)
		}
	}
	var all []difference
	for _, setting := range slices.Sorted(maps.Keys(values)) {
		if of := values[setting]; len(of) > 1 {
			slices.Sort(of)
			all = append(all, difference{setting, of})
		}
	}
	return all
}

// settingsVersion is the name of the version of the database's settings among the settings.
const settingsVersion = "settings_version"

// statusOf is that of /readyz in a word, and the reason.
func (a *API) statusOf(ctx context.Context) (status, reason string) {
	if a.services.Ready == nil {
		return "ready", ""
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	switch degraded, err := a.services.Ready(ctx); {
	case err != nil:
		return "not ready", err.Error()
	case degraded != "":
		return "degraded", degraded
	}
	return "ready", ""
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
