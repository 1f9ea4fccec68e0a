package api

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/store"
)

// mostMembers bounds the list of aggregators in an overview.
const mostMembers = 100

// overview reads the aggregators' heartbeats, which readers share and keep for some seconds: no
// caller causes a scan of the store.
func (a *API) overview(c call) (any, error) {
	p := a.services.Reader.Pipeline(c.ctx)
	status, reason := a.statusOf(c.ctx)
	o := client.Overview{Roles: a.cfg.Roles, Aggregators: p.Workers, Status: status, Lag: lagOf(p), AsOf: time.Now(), HeartbeatsUnread: p.Unread}
	if c.caller().Limited() {
		return o, nil
	}
	if p.RatesKnown {
		o.IncrementsPerSecond, o.CommitsPerSecond, o.IncrementsPerWrite = rounded(p.Increments), rounded(p.Commits), ratio(p.Increments, p.Entities)
	}
	o.Reason, o.Late = reason, p.Late[:min(len(p.Late), mostMembers)]
	o.SinceStart = &client.OverviewCounts{
		Increments: p.Folded, Writes: p.Written, IncrementsPerWrite: ratio(float64(p.Folded), float64(p.Written)), Duplicates: p.Duplicates, DeadLetters: p.DeadLetters,
	}
	o.Busiest = []client.BusyCounter{}
	for _, b := range a.services.Reader.Busiest(c.ctx) {
		o.Busiest = append(o.Busiest, client.BusyCounter{Counter: b.Counter, MovedPerSecond: *rounded(b.Rate)})
	}
	a.inside(&o, a.services.Reader.Fleet(c.ctx))
	return o, nil
}

// inside adds the facts about the deployment. A caller that is limited to prefixes does not get it, nor rates: which of its counters are among
// the busiest depends on the others.
func (a *API) inside(o *client.Overview, fleet []store.Worker) {
	o.AtLimit, o.LastDeadLetter, o.Differences = atLimit(fleet), lastDeadLetter(fleet), differences(fleet)
	for _, w := range fleet[:min(len(fleet), mostMembers)] {
		o.Fleet = append(o.Fleet, client.FleetMember{ID: w.ID, Stalled: w.Stalled, Lag: *rounded(w.Lag.Seconds()), ClockSkew: *rounded(w.Skew.Seconds()), LastCommit: w.LastCommit})
	}
	if a.services.Disk != nil {
		disk := a.services.Disk()
		o.Disk = &disk
	}
	if a.services.LastBackup != nil {
		o.LastBackup, o.BackupEvery = a.services.LastBackup(), a.services.BackupEvery.Seconds()
	}
	if a.services.Restored != nil {
		o.Restored = a.services.Restored()
	}
	if a.services.Unbalanced != nil {
		if rules, known := a.services.Unbalanced(); known {
			o.JournalRulesWithoutBalance = &rules
		}
	}
}

func lastDeadLetter(fleet []store.Worker) (last time.Time) {
	for _, w := range fleet {
		if w.LastDeadLetter.After(last) {
			last = w.LastDeadLetter
		}
	}
	return last
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
func differences(fleet []store.Worker) []client.FleetDifference {
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
	var all []client.FleetDifference
	for _, setting := range slices.Sorted(maps.Keys(values)) {
		if of := values[setting]; len(of) > 1 {
			slices.Sort(of)
			all = append(all, client.FleetDifference{Setting: setting, Values: of})
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
