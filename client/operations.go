package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// A Status says whether a process can do its work.
type Status struct {
	Status string `json:"status" schema:"=ok|ready|degraded"`
	// The missing part, if `status` is `degraded`.
	Reason string `json:"reason,omitzero"`
}

// An Overview is the state of the whole pipeline.
type Overview struct {
	// The roles of the process that answers.
	Roles []string `json:"roles"`
	// The aggregators that take messages.
	Aggregators int `json:"aggregators" schema:"0.."`
	// That of `/readyz` of the process that answers.
	Status string   `json:"status" schema:"=ready|degraded|not+ready"`
	Lag    *float64 `json:"lag" schema:"Lag"`
	// Increments folded, by the last two heartbeats of each aggregator. Null until each has sent two, and, like the next two, for a
	// token that is limited to prefixes.
	IncrementsPerSecond *float64 `json:"increments_per_second" schema:"0.."`
	CommitsPerSecond    *float64 `json:"commits_per_second" schema:"0.."`
	// Increments for each entity written, in the same time. Null if nothing was written.
	IncrementsPerWrite *float64  `json:"increments_per_write" schema:"0.."`
	AsOf               time.Time `json:"as_of"`
	// The aggregators' heartbeats could not be read: the store is slow or does not answer. The figures are those of the last ones.
	HeartbeatsUnread bool            `json:"heartbeats_unread,omitzero"`
	SinceStart       *OverviewCounts `json:"since_start,omitzero"`
	// The counters that moved most lately, the busiest first. An estimate: a counter with two thousandths of all movement, or less,
	// may be missing.
	Busiest []BusyCounter `json:"busiest,omitzero" schema:"#..100"`
	// Counters that need more than the 128 shards that a counter gets by itself.
	AtLimit        []string  `json:"at_limit,omitzero" schema:"CounterName #..20"`
	LastDeadLetter time.Time `json:"last_dead_letter,omitzero"`
	// Why the process is degraded or not ready. Like all other fields that are not required, it is absent for a token that is
	// limited to prefixes.
	Reason string `json:"reason,omitzero"`
	// The aggregators with a fresh heartbeat, also the ones that take no messages.
	Fleet []FleetMember `json:"fleet,omitempty" schema:"#..100"`
	// The aggregators, by `id`, whose last heartbeat ran out within the last 10 minutes: they have died, or the store is too slow
	// for their heartbeats.
	Late []string `json:"late,omitempty" schema:"#..100"`
	// Settings that should be the same in all aggregators, and are not.
	Differences []FleetDifference `json:"differences,omitempty"`
	Disk        *DiskSpace        `json:"disk,omitzero"`
	// Every increment accepted before is in the newest backup in `--backup-root`, and not below it, that the process knows. Absent if
	// it knows none.
	LastBackup time.Time `json:"last_backup,omitzero" schema:"date-time"`
	// Seconds between two regular backups (`--backup-every`). Absent if there are none.
	BackupEvery float64 `json:"backup_every,omitzero" schema:"above 0"`
	// When the database last came to another server, or was restored: it may lack increments that were acknowledged shortly before.
	// Absent if it never did, or does not know.
	Restored time.Time `json:"restored,omitzero" schema:"date-time"`
	// Rules for the journal without opening balances of all their counters from the last half of KEEP, as this process found within
	// the last hour. Absent if it has not looked, as a reader alone.
	JournalRulesWithoutBalance *int `json:"journal_rules_without_balance,omitzero" schema:"0.."`
}

// A FleetMember is an aggregator that is alive.
type FleetMember struct {
	// A random name of the aggregator, new at each start.
	ID string `json:"id"`
	// It takes no messages.
	Stalled bool `json:"stalled"`
	// The age of the oldest increment that it holds uncommitted, in seconds.
	Lag float64 `json:"lag" schema:"0.."`
	// The difference between its clock and the store's, in seconds, without a sign.
	ClockSkew  float64   `json:"clock_skew" schema:"0.."`
	LastCommit time.Time `json:"last_commit,omitzero"`
}

// A FleetDifference is a setting in which aggregators differ, and its values.
type FleetDifference struct {
	Setting string   `json:"setting"`
	Values  []string `json:"values" schema:"#2.."`
}

// DiskSpace is the space of a store on a disk of the process that answers, in bytes.
type DiskSpace struct {
	// By the store.
	Used uint64 `json:"used" schema:"0.."`
	// On its file system.
	Free uint64 `json:"free" schema:"0.."`
	// Below so many free bytes increments are refused. 0: never.
	MinFree uint64 `json:"min_free" schema:"0.."`
}

// OverviewCounts are counts since the aggregators that are alive started.
type OverviewCounts struct {
	// Increments folded.
	Increments int64 `json:"increments" schema:"0.."`
	// Entities written.
	Writes             int64    `json:"writes" schema:"0.."`
	IncrementsPerWrite *float64 `json:"increments_per_write" schema:"0.."`
	// Parts of messages that were counted before, and not again.
	Duplicates int64 `json:"duplicates" schema:"0.."`
	// Dead letters written.
	DeadLetters int64 `json:"dead_letters" schema:"0.."`
}

// A BusyCounter is a counter that moves much.
type BusyCounter struct {
	Counter string `json:"counter" schema:"CounterName"`
	// The sum of the absolute deltas, folded to one for each commit.
	MovedPerSecond float64 `json:"moved_per_second" schema:"0.."`
}

// A Backup is a finished backup.
type Backup struct {
	// The place of the backup.
	URL string `json:"url" schema:"like file:///backups/before-upgrade"`
	// The name of the backup.
	ID string `json:"id"`
	// Every increment accepted before is in the backup.
	BeganAt time.Time `json:"began_at"`
	// No increment accepted afterwards is in the backup.
	TakenAt time.Time `json:"taken_at"`
	// The size of the backup.
	Bytes int64 `json:"bytes" schema:"0.."`
	// The bytes that the target did not have.
	SentBytes int64 `json:"sent_bytes" schema:"0.."`
}

// A Badge is a total for a page. shields.io draws the first four members.
type Badge struct {
	SchemaVersion int    `json:"schemaVersion" schema:"=1"`
	Label         string `json:"label"`
	// The total with commas.
	Message string    `json:"message"`
	Color   string    `json:"color"`
	Counter string    `json:"counter" schema:"CounterName"`
	Total   int64     `json:"total"`
	AsOf    time.Time `json:"as_of"`
}

// Ready returns nil if the server is able to work, and its reason if it is not. It asks once.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.Readiness(ctx)
	return err
}

// Readiness is Ready with the status, which is degraded if something is missing that the server can do without.
func (c *Client) Readiness(ctx context.Context) (s Status, err error) {
	r := Request{Path: "/readyz"}.complete()
	err = c.bounded(ctx, c.timeout, r, &s)
	if err == nil && s.Status != "ready" && s.Status != "degraded" {
		err = &broken{c.base, fmt.Errorf("the status is %q; is that a countmill?", s.Status)}
	}
	if err != nil {
		return Status{}, conclude(r, err, false)
	}
	return s, nil
}

// Health returns nil if the process answers, whether it is able to work or not.
func (c *Client) Health(ctx context.Context) error {
	_, err := read[Status](ctx, c, "/healthz", nil)
	return err
}

// Overview returns the state of the pipeline.
func (c *Client) Overview(ctx context.Context) (Overview, error) {
	return read[Overview](ctx, c, "/v1/overview", nil)
}

// Backup copies the store of the server to a path below its backup root, or to the root if to is empty. After an error a later call
// goes on where this one ended. A large store takes longer than the default time-out. It needs the scope admin, and no prefixes.
func (c *Client) Backup(ctx context.Context, to string) (b Backup, err error) {
	request := make(map[string]string)
	if to != "" {
		request["to"] = to
	}
	body, err := encode(request)
	if err != nil {
		return b, err
	}
	return b, c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/backup", Body: body}, &b)
}

// Metrics returns the metrics of the process in Prometheus's text format. It needs the scope metrics, and no prefixes.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	return c.Do(ctx, Request{Path: "/metrics"})
}

// CounterMetrics returns the totals of the counters that match, in Prometheus's text format. A match is a name, or a prefix followed
// by *.
func (c *Client) CounterMetrics(ctx context.Context, match ...string) ([]byte, error) {
	return c.Do(ctx, Request{Path: "/metrics/counters", Query: url.Values{"match": match}})
}

// Badge returns the content of a counter's badge. label is the text before the total: the counter's name if it is empty.
func (c *Client) Badge(ctx context.Context, counter, label string) (Badge, error) {
	return read[Badge](ctx, c, "/badge/"+url.PathEscape(counter+".json"), params("label", label))
}

// Document returns the OpenAPI document of the server.
func (c *Client) Document(ctx context.Context) ([]byte, error) {
	return c.Do(ctx, Request{Path: "/openapi.json"})
}
