//go:build nogoogle

package appengine

import (
	"context"
	"errors"
)

type clientOptions = struct{}

// Read needs Google's client.
func Read(context.Context, Config) (*Found, error) {
	return nil, errors.New("Datastore: this countmill was built with -tags nogoogle; build it without the tag")
}
