package app

import (
	"cmp"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

// makeRoles makes the roles that were asked for on the backends that are open.
func (a *App) makeRoles() error {
	var err error
	if a.cfg.Roles.Has(Publisher) {
		if a.publisher, err = publisher.New(a.backends.bus, a.publisherConfig()); err != nil {
			return err
		}
	}
	if a.cfg.Roles.Has(Aggregator) {
		folded := a.backends.store
		if a.space != nil {
			folded = roomyStore{folded, a.space}
		}
		if a.aggregator, err = aggregator.New(a.backends.bus, folded, a.aggregatorConfig()); err != nil {
			return err
		}
		if a.backends.givenUp != nil {
			a.intake = aggregator.NewIntake(a.backends.givenUp, a.backends.store, a.intakeConfig())
		}
	}
	if a.cfg.Roles.Has(Reader) {
		if a.reader, err = reader.New(a.backends.store, a.backends.cache, a.readerConfig()); err != nil {
			return err
		}
		if a.admin, err = admin.New(a.reader, a.backends.store, a.adminConfig()); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) publisherConfig() publisher.Config {
	return publisher.Config{
		Topic:           a.backends.topic,
		Linger:          a.cfg.Linger,
		CountWithin:     a.cfg.CountWithin,
		MaxEntries:      a.cfg.OpenEntries,
		MaxBytes:        a.cfg.OpenBytes,
		DedupWindowFunc: a.window,
		Database:        a.backends.database(),
		Logger:          a.log.With("role", "publisher"),
	}
}

func (a *App) aggregatorConfig() aggregator.Config {
	return aggregator.Config{
		Topic:          a.backends.topic,
		Linger:         a.cfg.WindowLinger,
		CountWithin:    a.cfg.CountWithin,
		WindowMessages: a.cfg.WindowMessages,
		WindowCounters: a.cfg.WindowCounters,
		WindowMemory:   a.cfg.WindowMemory,
		Commits:        a.cfg.Commits,
		CommitTimeout:  a.cfg.CommitTimeout,
		Shards:         a.cfg.Shards,
		MaxShards:      a.cfg.MaxShards,
		ShardRate:      a.cfg.ShardRate,
		DeadLetterRate: a.cfg.DeadLetterRate,
		WorkerID:       a.cfg.WorkerID,
		// The aggregator must end within its step of the stop order (stop.go). Before the end
		// it gives back, in order, the messages that it could not commit.
		DrainTimeout: a.cfg.ShutdownTimeout / 4,
		OnFold:       func(took time.Duration) { a.metrics.folds.Observe(took.Seconds()) },
		Logger:       a.log.With("role", "aggregator"),
	}
}

func (a *App) intakeConfig() aggregator.IntakeConfig {
	return aggregator.IntakeConfig{
		Topic:   a.backends.givenUpTopic,
		Rate:    a.cfg.DeadLetterRate,
		Timeout: a.cfg.CommitTimeout,
		Logger:  a.log.With("role", "intake"),
	}
}

func (a *App) adminConfig() admin.Config {
	return admin.Config{
		Timeout: a.cfg.RequestTimeout,
		Logger:  a.log.With("role", "admin"),
	}
}

func (a *App) readerConfig() reader.Config {
	fromCache, fromStore := a.metrics.ages.WithLabelValues(reader.SourceCache), a.metrics.ages.WithLabelValues(reader.SourceStore)
	return reader.Config{
		DefaultStaleness: max(a.cfg.MaxStaleness, 0),
		Guess:            cmp.Or(a.cfg.Shards, 1),
		Database:         a.backends.database(),
		OnServe: func(age time.Duration, source string) {
			if source == reader.SourceCache {
				fromCache.Observe(age.Seconds())
			} else {
				fromStore.Observe(age.Seconds())
			}
		},
		Logger: a.log.With("role", "reader"),
	}
}
