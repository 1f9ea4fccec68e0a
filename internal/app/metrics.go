package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

// together are collectors as one. It describes nothing, so a strict registry takes it too.
type together []prometheus.Collector

// Describe sends nothing: Collect names the metrics.
func (c together) Describe(chan<- *prometheus.Desc) {}

// Collect is called at each scrape, maybe by several at once.
func (c together) Collect(out chan<- prometheus.Metric) {
	for _, of := range c {
		of.Collect(out)
	}
}

// newRegistry has everything that /metrics shows.
func newRegistry(services []prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
	)
	r.MustRegister(services...)
	return r
}

func foldDurations() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "countmill_fold_duration_seconds",
		Help:    "How long attempts to commit took.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16), // 0.5 ms to 16 s
	})
}

func totalAges() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "countmill_total_age_seconds",
		Help:    "How old totals were when they were served.",
		Buckets: []float64{0.001, 0.01, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60},
	}, []string{"source"})
}

func buildInfo() prometheus.Collector {
	v := BuildVersion()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "countmill_build_info",
		Help:        "Build of this process, in the labels; always 1.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision, "goversion": v.Go},
	})
	g.Set(1)
	return g
}

// A sample is one number under one name.
type sample struct {
	name, help string
	kind       prometheus.ValueType
	value      float64
	labels     []string // label, value, ...
}

func counter(name, help string, value int64, labels ...string) sample {
	return sample{name, help, prometheus.CounterValue, float64(value), labels}
}

func gauge(name, help string, value float64) sample {
	return sample{name, help, prometheus.GaugeValue, value, nil}
}

// samples is a collector for each function.
func samples(gather ...func() []sample) []prometheus.Collector {
	all := make([]prometheus.Collector, len(gather))
	for i := range gather {
		all[i] = &statsCollector{gather[i]}
	}
	return all
}

// A statsCollector makes metrics of samples that are gathered at once, so that those of
// one role are of one moment.
type statsCollector struct{ gather func() []sample }

// Describe sends nothing: Collect names its metrics.
func (c *statsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect is called at each scrape, maybe by several at once.
func (c *statsCollector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.gather() {
		var labels, values []string
		for i := 0; i+1 < len(s.labels); i += 2 {
			labels, values = append(labels, s.labels[i]), append(values, s.labels[i+1])
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(s.name, s.help, labels, nil), s.kind, s.value, values...)
	}
}

func aggregatorSamples(a *aggregator.Aggregator) []sample {
	s, settings := a.Stats(), a.Settings()
	return append(lagSamples(s.Lag, !s.Stalled || s.Lag > 0), []sample{
		counter("countmill_messages_received_total", "Messages taken from the bus.", s.Messages),
		counter("countmill_parts_received_total", "Parts in the messages taken from the bus.", s.Parts),
		counter("countmill_entries_folded_total", "Entries applied to the store.", s.Entries),
		counter("countmill_increments_folded_total", "Increments that the applied entries are the sums of, as publishers count them.", s.Increments),
		counter("countmill_commits_total", "Attempts to commit.", s.Commits),
		counter("countmill_commit_retries_total", "Attempts to commit after which something was left to do.", s.Retries),
		counter("countmill_commits_contended_total", "Attempts to commit that the store gave up because of others that wrote the same shards.", s.Contended),
		counter("countmill_duplicate_parts_total", "Parts not applied because they had been before.", s.Duplicates),
		counter("countmill_late_parts_total", "Parts applied later than --count-within allows.", s.Late),
		counter("countmill_conflicting_parts_total", "Parts refused to their senders: their ids were counted before with other increments.", s.Conflicts),
		counter("countmill_dead_letters_total", "Dead letters written.", s.DeadLetters),
		counter("countmill_replayed_dead_letters_total", "Dead letters that were replayed and removed.", s.Replayed),
		counter("countmill_records_written_total", "Records of counters written.", s.RecordsWritten),
		counter("countmill_counters_grown_total", "Records written to give a counter more shards.", s.Grown),
		counter("countmill_overflow_group_sums_total", "Sums of counters added to the overflow group of an index, because the name of their own group would not be valid.", s.Overflowed),
		counter("countmill_entities_written_total", "Entities written to the store.", s.EntitiesWritten),
		counter("countmill_entities_read_total", "Entities read from the store.", s.EntitiesRead, "role", "aggregator"),
		gauge("countmill_added_increments", "Increments that other programs' transactions added and no aggregator has counted yet, by the last look, which counts 10000 at most.", float64(s.Added)),
		gauge("countmill_held_messages", "Messages taken and not acknowledged.", float64(s.HeldMessages)),
		gauge("countmill_held_memory_bytes", "Memory of messages taken and not acknowledged, estimated.", float64(s.HeldMemory)),
		gauge("countmill_waiting_dead_letters", "Dead letters that are not written yet.", float64(s.WaitingDeadLetters)),
		gauge("countmill_replaying_dead_letters", "Dead letters that are being replayed.", float64(s.Replaying)),
		gauge("countmill_replay_age_seconds", "How long the oldest replay of a dead letter has been under way; 0 if there is none.", s.ReplayAge.Seconds()),
		gauge("countmill_window_widened_seconds", "How long windows wait beyond --count-within because commits fail again and again.", s.Widened.Seconds()),
		gauge("countmill_clock_skew_seconds", "Difference between the machine's clock and the store's, without a sign. The aggregator is not ready above 60.", s.Skew.Seconds()),
		gauge("countmill_dedup_window_seconds", "How long ids are remembered, as last read from the database; 0 before the first read.", settings.Window.Seconds()),
		gauge("countmill_settings_version", "Version of the database's settings that this aggregator goes by; 0 before it has read them.", float64(settings.Version)),
		gauge("countmill_unfinished_indexes", "Indexes that are being built or deleted, as this aggregator read them last.", float64(settings.Rules.Unfinished())),
		gauge("countmill_last_commit_timestamp_seconds", "When something was last committed; 0 before the first.", unixSeconds(s.LastCommit)),
	}...)
}

// lagSamples leaves out a number that nobody knows: a 0 would say that nothing waits.
func lagSamples(lag time.Duration, known bool) []sample {
	if !known {
		return nil
	}
	return []sample{gauge("countmill_lag_seconds", "Age of the oldest increment held uncommitted, or added by another program's transaction: by this aggregator, or in a process without one by any of them.", lag.Seconds())}
}

func busSamples(bus string, s backend.BusStats) []sample {
	return []sample{
		counter("countmill_bus_deliveries_total", "Messages that the broker delivered.", s.Deliveries, "bus", bus),
		counter("countmill_bus_redeliveries_total", "Messages that the broker had delivered before. Pub/Sub reports them only on a subscription with a dead-letter policy.", s.Redeliveries, "bus", bus),
		counter("countmill_bus_acks_total", "Acks passed on to the broker.", s.Acks, "bus", bus),
		counter("countmill_bus_acks_lost_total", "Acks that had not left when the subscription ended: those messages come again.", s.AcksLost, "bus", bus),
		counter("countmill_bus_nacks_total", "Messages given back to the broker.", s.Nacks, "bus", bus),
		counter("countmill_bus_stream_errors_total", "Connections to the broker that ended with an error or could not be opened.", s.StreamErrors, "bus", bus),
	}
}

func unseenSamples(bus backend.Observer) []sample {
	return []sample{gauge("countmill_unseen_seconds", "Age of the oldest message on the bus that no aggregator has taken; 0 if there is none.", bus.Unseen().Seconds())}
}

// pipelineSamples are from the aggregators' records. A process with an aggregator of its own, so
// that its reader is not alone, shows the lag of that instead.
func pipelineSamples(r *reader.Reader, alone bool) []sample {
	ctx, cancel := context.WithTimeout(context.Background(), pipelineTimeout)
	defer cancel()
	p := r.Pipeline(ctx)
	samples := []sample{gauge("countmill_aggregators_alive", "Aggregators that take messages, by their heartbeats of the last 15 s.", float64(p.Workers))}
	if p.NewestSettings > 0 {
		const name, help = "countmill_aggregators_settings_version", "Versions of the database's settings that aggregators use: the oldest and the newest."
		samples = append(samples,
			sample{name, help, prometheus.GaugeValue, float64(p.OldestSettings), []string{"of", "oldest"}},
			sample{name, help, prometheus.GaugeValue, float64(p.NewestSettings), []string{"of", "newest"}})
	}
	if !alone {
		return samples
	}
	return append(lagSamples(p.Lag, p.LagKnown()), samples...)
}

// pipelineTimeout bounds how long a scrape waits for the aggregators' records.
const pipelineTimeout = 2 * time.Second

func readerSamples(r *reader.Reader, alone bool) []sample {
	s := r.Stats()
	return append(pipelineSamples(r, alone), []sample{
		counter("countmill_totals_served_total", "Totals served.", s.FromStore, "source", "store"),
		counter("countmill_totals_served_total", "Totals served.", s.FromCache, "source", "cache"),
		counter("countmill_lookups_total", "Look-ups of the store for totals.", s.Lookups),
		counter("countmill_entities_read_total", "Entities read from the store.", s.Keys+s.Completions, "role", "reader"),
		counter("countmill_lists_total", "Pages of counters read.", s.Lists),
		counter("countmill_store_read_errors_total", "Reads of the store that failed.", s.StoreErrors),
		counter("countmill_cache_requests_total", "Counters looked for in the cache.", s.CacheHits, "result", "hit"),
		counter("countmill_cache_requests_total", "Counters looked for in the cache.", s.CacheMisses, "result", "miss"),
		counter("countmill_cache_errors_total", "Calls of the cache that failed; each is a miss.", s.CacheErrors),
		counter("countmill_cache_skipped_total", "Calls of the cache not made because it had failed a moment ago.", s.CacheSkipped),
		counter("countmill_shared_reads_total", "Calls answered by another call's read.", s.Shared),
		counter("countmill_refreshes_total", "Totals read ahead of their expiry.", s.Refreshes),
		counter("countmill_board_scans_total", "Scans of all counters of an index, for leaderboards.", s.Scans),
		counter("countmill_board_entities_read_total", "Keys or entities read by these scans.", s.Scanned),
		counter("countmill_overflows_total", "Totals not given because they do not fit 64 bits.", s.Overflows),
	}...)
}

func adminSamples(a *admin.Admin) []sample {
	s := a.Stats()
	const name, help = "countmill_admin_changes_total", "Changes of counters that people asked for."
	return []sample{
		counter(name, help, s.Grown, "change", "grow"),
		counter(name, help, s.Resets, "change", "reset"),
		counter(name, help, s.Deletes, "change", "delete"),
	}
}

func intakeSamples(in *aggregator.Intake) []sample {
	return []sample{counter("countmill_given_up_messages_total", "Messages that the broker gave up, taken in as dead letters.", in.Taken())}
}

func diskSamples(d backend.Disk) []sample {
	logs, tables := d.Written()
	const name, help = "countmill_store_written_bytes_total", "Bytes that the store has written to its logs and to its tables."
	return []sample{
		gauge("countmill_store_disk_bytes", "Disk space that the store takes.", float64(d.DiskUsage())),
		counter(name, help, int64(logs), "to", "logs"),
		counter(name, help, int64(tables), "to", "tables"),
	}
}

func poolSamples(p backend.Pooled) []sample {
	s := p.Pool()
	const name, help = "countmill_store_connections", "Connections to the server of the store, in use and idle."
	return []sample{
		sample{name, help, prometheus.GaugeValue, float64(s.Used), []string{"state", "used"}},
		sample{name, help, prometheus.GaugeValue, float64(s.Idle), []string{"state", "idle"}},
		gauge("countmill_store_connections_limit", "Most connections of this process: pool_max_conns.", float64(s.Most)),
		counter("countmill_store_connection_waits_total", "Calls that found no idle connection, and waited for one or made one.", s.Waits),
	}
}

func accessSamples(tokens *auth.Tokens, requests *httpserver.Refusals) []sample {
	valid := 1.0
	if tokens.Err() != nil {
		valid = 0
	}
	samples := []sample{
		gauge("countmill_tokens", "Tokens in force, expired ones included.", float64(tokens.Len())),
		gauge("countmill_tokens_file_valid", "1 if the file of tokens is in force as it is; 0 if it has a mistake and its last good version is in force.", valid),
		counter("countmill_refused_requests_total", "Requests refused because of who sent them.", requests.Unauthorized.Load(), "status", "401"),
		counter("countmill_refused_requests_total", "Requests refused because of who sent them.", requests.Forbidden.Load(), "status", "403"),
	}
	for name, at := range tokens.LastUsed() {
		samples = append(samples, sample{"countmill_token_last_used_timestamp_seconds", "When a token of this name last made a call of this process; 0 before the first.",
			prometheus.GaugeValue, unixSeconds(at), []string{"token", name}})
	}
	for name, refused := range tokens.Refused() {
		samples = append(samples, counter("countmill_quota_refused_requests_total", "Requests refused because of a limit of their token.", refused, "token", name))
	}
	return samples
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

func publisherSamples(p *publisher.Publisher) []sample {
	s := p.Stats()
	return []sample{
		counter("countmill_increments_total", "Increments that left the open batch, to be sent.", s.Increments),
		counter("countmill_increments_durable_total", "Increments whose batches the bus has.", s.Durable),
		counter("countmill_increments_unknown_total", "Increments whose outcome will never be known.", s.Unknown),
		counter("countmill_increments_refused_total", "Increments refused: overloaded, closed or in conflict.", s.Refused),
		counter("countmill_entries_sent_total", "Entries in messages that the bus has.", s.Entries),
		counter("countmill_messages_sent_total", "Messages that the bus has.", s.Messages),
		counter("countmill_sent_bytes_total", "Bytes of messages that the bus has.", s.Bytes),
		counter("countmill_message_resends_total", "Messages sent again.", s.Resends),
		gauge("countmill_open_entries", "Entries that wait to be sent.", float64(s.OpenEntries)),
		gauge("countmill_open_bytes", "Memory of the entries that wait to be sent.", float64(s.OpenBytes)),
		gauge("countmill_messages_in_flight", "Messages on their way to the bus.", float64(s.InFlight)),
		gauge("countmill_messages_queued", "Messages that wait for a free call to the bus.", float64(s.Queued)),
	}
}
