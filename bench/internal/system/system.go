// Package system has every way to count that the benchmark compares: countmill, and its alternatives.
package system

import (
	"context"

	"github.com/countmill/countmill/bench/internal/load"
)

// A System is one way to count. Each measurement has an instance of its own, with empty servers of its
// own.
type System struct {
	Name string
	// Ack is the promise when an increment is acknowledged.
	Ack string
	// How names the programs, with their settings.
	How string
	// Loads names the loads on which it is measured.
	Loads []string
	// Family names systems that do the same in several ways. The fastest one represents the family.
	Family string
	// Against is the family to which ratios are taken, or "".
	Against string
	// Version returns the version of the programs. Its error matches server.ErrMissing if one is not
	// installed.
	Version func() (string, error)
	Open    func(ctx context.Context, at Place) (Instance, error)
}

// A Place is the environment of an instance.
type Place struct {
	Dir  string     // empty, and the instance's own
	Load *load.Load // the future load, so that names, bodies and handles can be made in advance
	// Countmill and Self are the paths of a built countmill and of this program.
	Countmill, Self string
}

// An Instance counts once.
type Instance interface {
	// Count walks the run and returns when everything that was walked is acknowledged.
	Count(ctx context.Context, r *load.Run) error
	// Check returns an error unless exactly the sent increments have been counted.
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
		embeddedSystems(), redisSystems(), postgresSystems(), natsSystems(), httpSystems(), httpBusSystems(), googleSystems(),
	} {
		all = append(all, some...)
	}
	return all
}

// closers end everything that an instance has started, the last first.
type closers []func()

func (c *closers) add(f func()) { *c = append(*c, f) }

// Close ends everything.
func (c *closers) Close() {
	for i := len(*c) - 1; i >= 0; i-- {
		(*c)[i]()
	}
	*c = nil
}

// opened returns the instance. If there was an error, it closes everything that is open already.
func opened[I Instance](i I, err error) (Instance, error) {
	if err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}
