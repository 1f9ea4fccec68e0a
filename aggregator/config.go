package aggregator

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Config sets up an Aggregator. The zero value works.
type Config struct {
	// Topic is the topic to subscribe to. Default "countmill".
	Topic string

	// Linger is how long a window waits for more after its first part. If it is negative, a
	// window closes as soon as a commit slot is free. Default 100ms.
	Linger time.Duration

	// CountWithin is the age up to which an increment should be counted; 0 for no such target. A
	// window then waits until its oldest increment has just enough time left for the commit,
	// judged by recent commits. It waits longer while commits fail again and again. Linger wins
	// if both are set. From 100ms to 1m. Default 0.
	CountWithin time.Duration

	// A window closes early at this many messages (default 10,000), distinct counters plus
	// markers (default 100,000) or bytes of memory (default 64 MiB, estimated as for HeldMemory).
	WindowMessages, WindowCounters, WindowMemory int

	// HeldMessages and HeldMemory bound the unacknowledged messages, by their number and by their
	// memory in bytes. At either bound the aggregator takes no more messages from the bus.
	// Defaults: 2*WindowMessages and 4*WindowMemory.
	//
	// The aggregator estimates the memory of a message when it decodes it: 1 KiB, its size, 320
	// bytes for each part, and 64 for each entry. An increment with an id is a part of its own.
	// The last message may exceed the bound, by 8 MiB if it is a batch of 512 KiB. The heap stays
	// below 1.5 times the bound.
	HeldMessages, HeldMemory int

	// Commits is the most commits under way at once. Default: store.Limits.Commits.
	Commits int

	// CommitTimeout bounds every call to the store. Default 10s.
	CommitTimeout time.Duration

	// Shards is the number of shards of a new counter. From 1 to countmill.MaxShards. Default:
	// store.Limits.Shards.
	Shards int

	// MaxShards is the number of shards up to which the aggregator grows a busy counter. A
	// counter with more shards keeps them. From 1 to countmill.MaxShards. Default 128.
	MaxShards int

	// ShardRate is the number of commits a second that one shard sustains. If it is negative, the
	// aggregator grows no counter. Default: store.Limits.ShardRate.
	ShardRate float64

	// Remember is the number of counters whose records are kept in memory, at most 126 bytes for
	// each. It is fewer if names have more than 48 bytes on average. Default 2,000,000.
	Remember int

	// DeadLetterRate is the most dead letters written in a second; the rest waits in memory.
	// Replayed letters are read at the same rate. Default 100.
	DeadLetterRate int

	// DrainTimeout bounds the time from the end of Run's context to its return. The last
	// heartbeat takes up to a second more. Default 20s.
	DrainTimeout time.Duration

	// WorkerID names this aggregator among others. Default: random.
	WorkerID string

	// HeartbeatEvery is the interval at which the worker record is written. The record expires
	// after three intervals. Default 5s.
	HeartbeatEvery time.Duration

	// Setup are settings by their names that all aggregators of a database should share. The worker
	// record has them, so that a person can compare. A few short ones. Default: none.
	Setup map[string]string

	// OnFold is called with the duration of each attempt to commit. It must not block, and it
	// must allow concurrent calls. Default: none.
	OnFold func(took time.Duration)

	// Logger gets lifecycle, retries and errors. Default: discards.
	Logger *slog.Logger

	env *clock.Env // of a simulation (clock.With), otherwise nil

	// Decode is for simulations of later wire versions. Leave it nil: wire.Decode.
	Decode func(payload []byte) (*wire.Batch, error)
}

var _ = clock.Hook(func(c *Config, e *clock.Env) { c.env = e })

func (c Config) withDefaults(limits store.Limits) Config {
	c.Topic = cmp.Or(c.Topic, "countmill")
	if c.Linger != 0 {
		c.CountWithin = 0
	}
	c.Linger = cmp.Or(c.Linger, 100*time.Millisecond)
	c.WindowMessages = cmp.Or(c.WindowMessages, 10_000)
	c.WindowCounters = cmp.Or(c.WindowCounters, 100_000)
	c.WindowMemory = cmp.Or(c.WindowMemory, 64<<20)
	c.HeldMessages = cmp.Or(c.HeldMessages, 2*c.WindowMessages)
	c.HeldMemory = cmp.Or(c.HeldMemory, 4*c.WindowMemory)
	c.Commits = cmp.Or(c.Commits, limits.Commits)
	c.CommitTimeout = cmp.Or(c.CommitTimeout, 10*time.Second)
	c.Shards = cmp.Or(c.Shards, limits.Shards)
	c.MaxShards = cmp.Or(c.MaxShards, 128)
	c.ShardRate = cmp.Or(c.ShardRate, limits.ShardRate)
	c.Remember = cmp.Or(c.Remember, 2_000_000)
	c.DeadLetterRate = cmp.Or(c.DeadLetterRate, 100)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 20*time.Second)
	c.WorkerID = cmp.Or(c.WorkerID, randomName(c.env))
	c.HeartbeatEvery = cmp.Or(c.HeartbeatEvery, 5*time.Second)
	if c.Decode == nil {
		c.Decode = wire.Decode
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports every problem at once.
func (c Config) validate() error {
	var errs []error
	positive := func(name string, n int) {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s must be at least 1, got %d", name, n))
		}
	}
	positive("WindowMessages", c.WindowMessages)
	positive("WindowCounters", c.WindowCounters)
	positive("WindowMemory", c.WindowMemory)
	positive("HeldMessages", c.HeldMessages)
	positive("HeldMemory", c.HeldMemory)
	positive("Commits", c.Commits)
	positive("Remember", c.Remember)
	positive("DeadLetterRate", c.DeadLetterRate)
	for name, n := range map[string]int{"Shards": c.Shards, "MaxShards": c.MaxShards} {
		if n < 1 || n > countmill.MaxShards {
			errs = append(errs, fmt.Errorf("%s must be from 1 to %d, got %d", name, countmill.MaxShards, n))
		}
	}
	if c.CountWithin != 0 && (c.CountWithin < MinCountWithin || c.CountWithin > MaxCountWithin) {
		errs = append(errs, fmt.Errorf("CountWithin must be from %s to %s, or 0 for no target, got %s", MinCountWithin, MaxCountWithin, c.CountWithin))
	}
	for name, d := range map[string]time.Duration{
		"CommitTimeout": c.CommitTimeout,
		"DrainTimeout":  c.DrainTimeout, "HeartbeatEvery": c.HeartbeatEvery,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive, got %s", name, d))
		}
	}
	return errors.Join(errs...)
}
