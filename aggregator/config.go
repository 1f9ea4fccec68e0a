package aggregator

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Config sets up an Aggregator. The zero value works.
type Config struct {
	// Topic is what to subscribe to. Default "countmill".
	Topic string

	// Linger is how long a window waits for more after its first part. Default 100ms.
	// Negative: not at all, a window closes as soon as a commit slot is free.
	Linger time.Duration

	// CountWithin is how old an increment may be when it is counted. A window then waits for
	// as long as that leaves its oldest increment time for the commit, by what commits took
	// lately, and longer while commits fail again and again. Default 0, which is none:
	// Linger. A Linger beside it wins.
	CountWithin time.Duration

	// A window closes early at this many messages (default 10,000), distinct counters and
	// markers (default 100,000) or bytes of memory (default 64 MiB), estimated as for HeldMemory.
	WindowMessages, WindowCounters, WindowMemory int

	// HeldMessages and HeldMemory bound the messages that are held unacknowledged, by their
	// number and by their memory in bytes. At either bound the aggregator takes no more from
	// the bus. Defaults: 2 windows of messages, 4 of memory.
	//
	// The aggregator estimates the memory of a message when it decodes it: 1 KiB, its size, 320
	// bytes for each part, and 64 for each entry. An increment with an id is a part of its own.
	// The last message may exceed the bound, by 8 MiB if it is a batch of 512 KiB. The heap
	// stays below 1.5 times the bound.
	HeldMessages, HeldMemory int

	// Commits is how many commits may be under way at once. Default: what the store
	// gains from.
	Commits int

	// CommitTimeout bounds every call to the store. Default 10s.
	CommitTimeout time.Duration

	// Shards is what a new counter starts with. Default: what the store says.
	Shards int

	// MaxShards is the most shards that a counter is given when commits to it are more than
	// its shards sustain. One that has more keeps them. Default 128.
	MaxShards int

	// ShardRate is how many commits a second one shard sustains. Default: what the store
	// says. Negative: counters keep the numbers of shards that they have.
	ShardRate float64

	// Remember is how many counters' records are kept in memory, fewer where names have
	// more than 48 bytes on average: at most 126 bytes for each. Default 2,000,000.
	Remember int

	// DeadLetterRate is how many dead letters are written a second at most; the rest is
	// held. Those that can be read by now are read at the same rate. Default 100.
	DeadLetterRate int

	// DrainTimeout bounds how long Run goes on after its context ended; its last word to
	// the store takes up to a second more. Default 20s.
	DrainTimeout time.Duration

	// WorkerID names this aggregator among others. Default: random.
	WorkerID string

	// HeartbeatEvery is how often the worker's record is written. Default 5s. The record
	// expires after three times that.
	HeartbeatEvery time.Duration

	// OnFold is told how long each attempt to commit took. It must not block. Optional.
	OnFold func(took time.Duration)

	// Logger. Default: discards.
	Logger *slog.Logger

	// Env is for simulations. Leave it nil.
	Env *sysenv.Env

	// Decode is for simulations of wire versions to come. Leave it nil: wire.Decode.
	Decode func(payload []byte) (*wire.Batch, error)
}

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
	c.WorkerID = cmp.Or(c.WorkerID, randomName(c.Env))
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
		errs = append(errs, fmt.Errorf("CountWithin must be from %s to %s, or 0 for none, got %s", MinCountWithin, MaxCountWithin, c.CountWithin))
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
