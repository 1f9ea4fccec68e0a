package app

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/internal/systemd"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

// ErrUsage is matched by errors that a change of the command line or of the environment can
// fix.
var ErrUsage = errors.New("usage")

// usageError is one line for a person; it matches ErrUsage.
type usageError struct{ text string }

// Usagef is an error that matches ErrUsage.
func Usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func (e *usageError) Error() string        { return e.text }
func (e *usageError) Is(target error) bool { return target == ErrUsage }

// A FlagError is an error about the value of a flag.
type FlagError struct {
	Flag string // without dashes
	Err  error
}

func (e *FlagError) Error() string { return "--" + e.Flag + ": " + e.Err.Error() }
func (e *FlagError) Unwrap() error { return e.Err }

// DefaultListen is where `countmill up` listens and where the verbs look for it.
const DefaultListen = "127.0.0.1:8080"

// The bounds of CountWithin.
const (
	MinCountWithin = aggregator.MinCountWithin
	MaxCountWithin = aggregator.MaxCountWithin
)

// Config sets up an App. The zero value is `countmill up` without flags. Flags say
// more about each field (package command).
type Config struct {
	// Roles to run. Default Up.
	Roles Roles

	// Listen is the address to serve on; port 0 picks a free one. Default DefaultListen.
	Listen string
	// Pprof is the address of this machine to serve profiles on; port 0 picks a free one. Default: none
	// are served.
	Pprof string
	// Profiles has the paths of package net/http/pprof. That package adds them to http.DefaultServeMux, where a program that embeds
	// countmill may serve them to everybody: so the command line imports it.
	Profiles http.Handler
	// Tokens is the file of tokens, one for each caller; empty: anybody may call. Insecure lets
	// anybody also call from other machines. Default: anybody, from this machine only.
	Tokens   string
	Insecure bool
	// CORSOrigins are web pages whose scripts may call. Default: none.
	CORSOrigins []string
	// BackupRoot is the place below which backups may be made: a directory, or a URL of Buckets.
	// Default: none are.
	BackupRoot string
	// BackupEvery is the time between regular backups to BackupRoot, and BackupKeep how long these are kept.
	// Defaults 0: there are none; all are kept.
	BackupEvery, BackupKeep time.Duration
	// Bus, Store and Cache are URLs. Defaults inproc:, pebble:countmill-data, memory:.
	Bus, Store, Cache string

	// Stores and Buses are backends of other modules, beside those of the program.
	Stores []backend.Store
	Buses  []backend.Bus
	// Buckets are places for backups of other modules, beside directories.
	Buckets []backend.Buckets

	// Create makes the topic, subscription and meta record if they are missing. Default false.
	Create bool

	// Publisher, Aggregator and Reader set the roles up. The process sets their topics, loggers
	// and functions, Publisher.CountWithin, Aggregator.CountWithin and DrainTimeout, and
	// Reader.Guess itself.
	//
	// Memory and CountWithin, if it is set, decide the bounds and the lingers of Publisher and Aggregator.
	// Lingers are otherwise none with inproc:, or 250ms and 100ms by default.
	// Reader.DefaultStaleness: negative always reads the store; the default is that with pebble:,
	// else 2s.
	Publisher  publisher.Config
	Aggregator aggregator.Config
	Reader     reader.Config

	// Indexer sets up the work at indexes. The process sets its name, logger and function itself. Defaults:
	// 20,000 shards a second, and each reading at most a day old.
	Indexer indexer.Config

	// Memory bounds the increments that a publisher gathers, and the messages that an aggregator holds.
	// Their other bounds are in proportion to it. Default 256 MiB.
	Memory int

	// DedupWindow is the deduplication window: for how long ids are remembered. An aggregator
	// writes it into the database; a publisher refuses increments whose time is older.
	// Default 0: the window in the database, or 8 days if the database is new or there is none.
	DedupWindow time.Duration

	// JournalPrefixes are the patterns of rules for the journal, for a publisher in a process without a
	// database. It then does not sum the increments of different tokens. Default: none.
	JournalPrefixes []string

	// CountWithin is how old an increment may be when it is counted: the same for the publisher
	// and the aggregator. Default 0: the lingers decide.
	CountWithin time.Duration

	// MinFree is how many bytes of a pebble: store's file system have to be free for increments
	// to be taken. Negative: none. Default 0: the smaller of 1 GiB and 5 % of the file system,
	// none below 4 GiB.
	MinFree int

	// Connections is how many HTTP connections are open at once, at least 2. Default 0: 10,000, fewer
	// if the system allows fewer open files.
	Connections int
	// RequestTimeout bounds one request for increments. Default 10s.
	RequestTimeout time.Duration
	// ShutdownTimeout bounds everything between the first signal and the end. Default 25s.
	ShutdownTimeout time.Duration

	// LogLevel is debug, info, warn or error, LogFormat text or json. Defaults info, text.
	LogLevel, LogFormat string
	// Logger. Default: discards. The command makes one of LogLevel and LogFormat.
	Logger *slog.Logger

	// Supervisor gets reports of this process: ready, alive, stopping. Default: there is none.
	Supervisor *systemd.Supervisor
}

// Defaults is the configuration of roles without flags.
func Defaults(roles Roles) Config { return Config{Roles: roles}.withDefaults() }

func (c Config) withDefaults() Config {
	c.Roles = cmp.Or(c.Roles, Up)
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	c.Bus = cmp.Or(c.Bus, "inproc:")
	c.Store = cmp.Or(c.Store, "pebble:countmill-data")
	c.Cache = cmp.Or(c.Cache, "memory:")
	c.Memory = cmp.Or(c.Memory, defaultMemory)
	c.Publisher.MaxEntries, c.Publisher.MaxBytes = c.share(2_000_000), c.Memory
	c.Aggregator.WindowMessages, c.Aggregator.WindowCounters = c.share(10_000), c.share(100_000)
	c.Aggregator.WindowMemory = c.Memory / 4 // an aggregator holds four times as much
	c.Indexer.Rate = cmp.Or(c.Indexer.Rate, 20_000)
	c.Indexer.Recheck = cmp.Or(c.Indexer.Recheck, 24*time.Hour)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 25*time.Second)
	c.LogLevel = cmp.Or(c.LogLevel, "info")
	c.LogFormat = cmp.Or(c.LogFormat, "text")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

const defaultMemory = 256 << 20

// share is a bound that is atDefault with the default Memory, and in proportion to it.
func (c Config) share(atDefault int) int { return c.Memory * atDefault / defaultMemory }

// Resolved sets the values that depend on the backends. Within one process a commit is so
// cheap that waiting for more increments gains nothing. A read is so cheap that an old total
// gains nothing either.
func (c Config) Resolved() Config {
	linger, window := 250*time.Millisecond, 100*time.Millisecond
	_, inProcess := c.oneProcess()
	switch {
	case inProcess:
		linger, window = -1, -1
	case c.CountWithin > 0:
		linger, window = 0, 0 // the roles have their parts of it
	}
	c.Publisher.Linger = cmp.Or(c.Publisher.Linger, linger)
	c.Aggregator.Linger = cmp.Or(c.Aggregator.Linger, window)
	staleness := 2 * time.Second
	if c.freeReads() {
		staleness = -1
	}
	c.Reader.DefaultStaleness = cmp.Or(c.Reader.DefaultStaleness, staleness)
	return c
}
