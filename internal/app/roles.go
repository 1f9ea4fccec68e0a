package app

import (
	"cmp"
	"time"

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
		if a.aggregator, err = aggregator.New(a.backends.bus, a.backends.store, a.aggregatorConfig()); err != nil {
			return err
		}
	}
	if a.cfg.Roles.Has(Reader) {
		if a.reader, err = reader.New(a.backends.store, a.backends.cache, a.readerConfig()); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) publisherConfig() publisher.Config {
	return publisher.Config{
		Topic:      a.backends.topic,
		Linger:     a.cfg.Linger,
		MaxEntries: a.cfg.OpenEntries,
		MaxBytes:   a.cfg.OpenBytes,
		Horizon:    a.cfg.Horizon,
		Logger:     a.log.With("role", "publisher"),
	}
}

func (a *App) aggregatorConfig() aggregator.Config {
	return aggregator.Config{
		Topic:          a.backends.topic,
		Linger:         a.cfg.WindowLinger,
		WindowMessages: a.cfg.WindowMessages,
		WindowCounters: a.cfg.WindowCounters,
		WindowBytes:    a.cfg.WindowBytes,
		Commits:        a.cfg.Commits,
		CommitTimeout:  a.cfg.CommitTimeout,
		Shards:         a.cfg.Shards,
		Horizon:        a.cfg.Horizon,
		DeadLetterRate: a.cfg.DeadLetterRate,
		WorkerID:       a.cfg.WorkerID,
		// The loopback bus never delivers twice and pebble says when it cannot tell: then
		// nothing of an anonymous part can repeat, and its marker would only fill the disk.
		SkipAnonymousMarkers: a.backends.local && a.backends.dir != "",
		// It must be done when its step of the stop order is (stop.go), and give back in
		// order what it could not commit.
		DrainTimeout: a.cfg.ShutdownTimeout / 4,
		OnFold:       func(took time.Duration) { a.metrics.folds.Observe(took.Seconds()) },
		Logger:       a.log.With("role", "aggregator"),
	}
}

func (a *App) readerConfig() reader.Config {
	return reader.Config{
		DefaultStaleness: max(a.cfg.MaxStaleness, 0),
		Guess:            cmp.Or(a.cfg.Shards, 1),
		OnServe: func(age time.Duration, source string) {
			a.metrics.ages.WithLabelValues(source).Observe(age.Seconds())
		},
		Logger: a.log.With("role", "reader"),
	}
}
