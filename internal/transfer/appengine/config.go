package appengine

import (
	"errors"
	"time"
)

// Config says which database to read.
type Config struct {
	// Project is the id of the Google Cloud project. Required.
	Project string
	// Database is the id of the database. Default "", the project's default database.
	Database string
	// Namespace is the namespace of the counters. Default "".
	Namespace string
	// JavaNames are the counters of the layout java. Default nil: all counters, which requires a query
	// of kinds.
	JavaNames []string
	// Emulator is HOST:PORT of an emulator. Default "", Google's service.
	Emulator string
	// Silence is the longest wait for more of an answer. Default 1m.
	Silence time.Duration
	// Read is called by several goroutines, with the number of entities since its last call. Default
	// nothing.
	Read func(entities int)

	options dialOptions // for tests
}

// ErrNoKinds means that the server answers no query of kinds. Name the counters of the layout java
// instead.
var ErrNoKinds = errors.New("the server does not list its kinds")

// A Layout is how one version of the code stores its shards. See the package comment.
type Layout string

// The layouts.
const (
	Python Layout = "python"
	DB     Layout = "db"
	Java   Layout = "java"
	JDO    Layout = "jdo"
	Go     Layout = "go"
	Simple Layout = "simple"
)
