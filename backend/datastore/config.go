package datastore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/countmill/countmill"
)

// Config says where the store is and how it runs.
type Config struct {
	// Project is the id of the Google Cloud project. Required.
	Project string
	// Database is the id of the database. Default "", the project's default database.
	Database string
	// Namespace separates the counters of several deployments in one database. Default "".
	Namespace string

	// Window is how long a new database recognises a repeated part. An existing database uses its own
	// setting, which SetWindow changes. Default countmill.DefaultDedupWindow.
	Window time.Duration

	// ReadOnly opens the store for reading totals. Open makes no probe, and folds return
	// store.ErrDeployment. Dead letters can still be written and removed, if the database permits it.
	// Default false.
	ReadOnly bool
	// Create makes the meta record if the database has none. Default false; always true against an
	// emulator.
	Create bool

	// Emulator is HOST:PORT of an emulator, which gets neither credentials nor encryption. Default the
	// variable DATASTORE_EMULATOR_HOST, as in Google's own libraries.
	Emulator string
	// Endpoint is HOST:PORT of the service. Default Google's.
	Endpoint string

	// OpenTimeout bounds Open, which waits for a server that is not running yet. Default 20s.
	OpenTimeout time.Duration
	// Timeout bounds a call whose context has no earlier deadline. Default 30s.
	Timeout time.Duration

	// Logger gets lifecycle messages and warnings. Default discards.
	Logger *slog.Logger
	// DialOptions are added to the options of the connection. Default none.
	DialOptions []grpc.DialOption
}

func (c Config) withDefaults() Config {
	c.Emulator = strings.TrimPrefix(cmp.Or(c.Emulator, os.Getenv("DATASTORE_EMULATOR_HOST")), "http://")
	c.Create = c.Create || c.Emulator != ""
	c.Window = cmp.Or(c.Window, countmill.DefaultDedupWindow)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 20*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

var (
	projectPattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]{0,99}$`)
	databasePattern  = regexp.MustCompile(`^([a-z][a-z0-9-]{2,61}[a-z0-9])?$`)
	namespacePattern = regexp.MustCompile(`^[0-9A-Za-z._-]{0,100}$`)
)

func (c Config) validate() error {
	var errs []error
	if !projectPattern.MatchString(c.Project) {
		errs = append(errs, fmt.Errorf("Project must be the id of a Google Cloud project, got %q", c.Project))
	}
	if !databasePattern.MatchString(c.Database) {
		errs = append(errs, fmt.Errorf("Database must be 4 to 63 of a-z, 0-9 and -, or empty for the default database, got %q", c.Database))
	}
	if !namespacePattern.MatchString(c.Namespace) {
		errs = append(errs, fmt.Errorf("Namespace must be at most 100 of 0-9, A-Z, a-z, . _ and -, got %q", c.Namespace))
	}
	if c.Emulator != "" && c.Endpoint != "" {
		errs = append(errs, fmt.Errorf("Endpoint %s and the emulator %s (DATASTORE_EMULATOR_HOST) exclude each other: set only one", c.Endpoint, c.Emulator))
	}
	if c.Window < 0 {
		errs = append(errs, fmt.Errorf("Window must not be negative, got %s", c.Window))
	}
	if c.OpenTimeout < 0 || c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("OpenTimeout and Timeout must not be negative, got %s and %s", c.OpenTimeout, c.Timeout))
	}
	return errors.Join(errs...)
}

// String returns the name of the database as in its URL.
func (c Config) String() string {
	name := "datastore://" + c.Project
	if c.Database != "" {
		name += "/" + c.Database
	}
	if c.Namespace != "" {
		name += "?namespace=" + c.Namespace
	}
	return name
}
