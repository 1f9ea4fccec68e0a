package app

import (
	"errors"
	"net/http"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/store"
)

// forbidden says who has to act where the store refuses this process.
func forbidden(err error) error {
	if !errors.Is(err, store.ErrDeployment) {
		return err
	}
	p := api.NewProblem(http.StatusServiceUnavailable, "unavailable", "unavailable",
		"the store does not let this process do that; ask an aggregator, or give it the right to write: "+err.Error())
	p.Header = http.Header{"Retry-After": {"60"}}
	return p
}
