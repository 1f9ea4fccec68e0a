// Package system has every way to count that the benchmark compares: countmill, and what
// people would use instead.
package system

import (
	"context"

	"github.com/countmill/countmill/bench/internal/load"
)

// A System is one way to count. Each measurement has an instance of its own, with servers
// of its own that hold nothing yet.
type System struct {
	Name string
	// Ack is what is known when an increment is acknowledged.
	Ack string
	// How is what is run, with its settings.
	How string
	// Loads names the loads that it is measured on.
	Loads []string
	// Family names systems that do the same in several ways: the fastest stands for all.
	Family string
	// Against is the family that ratios are taken to, or none.
	Against string
	// Version says of what is run which one it is. The error matches server.ErrMissing
	// where it is not installed.
	Version func() (string, error)
	Open    func(ctx context.Context, at Place) (Instance, error)
}

// A Place is where an instance lives.
type Place struct {
	Dir  string     // empty, and the instance's own
	Load *load.Load // what it will count: names, bodies and handles may be made beforehand
	// Countmill and Self are the paths of a built countmill and of this program.
	Countmill, Self string
}

// An Instance counts once.
type Instance interface {
	// Count walks the run and returns when all that was walked is acknowledged.
	Count(ctx context.Context, r *load.Run) error
	// Check returns an error unless exactly what was sent has been counted.
	Check(ctx context.Context, r *load.Run) error
	Close()
}

// The loads, by name.
var (
	hot      = []string{"hot"}
	names    = []string{"hot", "zipf", "uniform"}
	distinct = []string{"distinct"}
)

// All is every system, in the order in which a round measures them.
func All() []System {
	var all []System
	for _, some := range [][]System{
		embeddedSystems(), redisSystems(), postgresSystems(), natsSystems(), memcachedSystems(), httpSystems(), googleSystems(),
	} {
		all = append(all, some...)
	}
	return all
}

// closers end what an instance has started, the last first.
type closers []func()

func (c *closers) add(f func()) { *c = append(*c, f) }

// Close ends everything.
func (c *closers) Close() {
	for i := len(*c) - 1; i >= 0; i-- {
		(*c)[i]()
	}
	*c = nil
}

// opened returns the instance, or closes what of it is open already where there was an
// error.
func opened[I Instance](i I, err error) (Instance, error) {
	if err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}
