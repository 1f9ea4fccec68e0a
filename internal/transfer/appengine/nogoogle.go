//go:build nogoogle

package appengine

import (
	"context"
	"errors"
)

type dialOptions = struct{}

// Read needs Google's libraries.
func Read(context.Context, Config) (*Found, error) {
	return nil, errors.New("Datastore: this countmill was built with -tags nogoogle; build it without the tag")
}
