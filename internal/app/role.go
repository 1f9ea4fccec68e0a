package app

import "strings"

// Roles is a set of roles.
type Roles uint8

// The roles, and what `countmill up` runs.
const (
	Publisher Roles = 1 << iota
	Aggregator
	Reader
	Indexer

	Up = Publisher | Aggregator | Reader | Indexer
)

// Has reports whether any role of other is in r.
func (r Roles) Has(other Roles) bool { return r&other != 0 }

// String is the name of the command that runs the roles.
func (r Roles) String() string {
	switch r {
	case Up:
		return "up"
	case Indexer:
		return "index work"
	}
	return strings.Join(r.Names(), "+")
}

// Names are the names of the roles.
func (r Roles) Names() []string {
	var names []string
	for _, role := range []struct {
		role Roles
		name string
	}{{Publisher, "publisher"}, {Aggregator, "aggregator"}, {Reader, "reader"}, {Indexer, "indexer"}} {
		if r.Has(role.role) {
			names = append(names, role.name)
		}
	}
	return names
}
