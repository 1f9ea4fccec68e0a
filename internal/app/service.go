package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/httpserver"
)

// A service is a part of the process: a role, a backend, or the server. A part that the process
// does not have is absent from its list of services.
type service interface {
	// Routes adds the calls that the service answers over HTTP.
	Routes(*surface)

	// Ready returns why the process cannot do its work. degraded names a part that is missing, if
	// the process works without it.
	Ready(ctx context.Context) (degraded string, err error)

	// Collect returns the metrics of the service.
	Collect() []prometheus.Collector

	// Run works until ctx ends or Stop is called. ctx ends with the signal to stop. A service that
	// other services still need after the signal works on until Stop. An error ends the process.
	Run(ctx context.Context) error

	// Stop ends Run, and closes everything that the service has open. It takes as long as ctx at most. The
	// service may never have run.
	Stop(ctx context.Context) error
}

// idle does nothing. Services embed it, and replace the methods that they need.
type idle struct{}

func (idle) Routes(*surface)                       {}
func (idle) Ready(context.Context) (string, error) { return "", nil }
func (idle) Collect() []prometheus.Collector       { return nil }
func (idle) Run(context.Context) error             { return nil }
func (idle) Stop(context.Context) error            { return nil }

// A named is a service in the list. Reasons, errors and logs have its name.
type named struct {
	name string
	service
}

// A surface is the HTTP API while services add to it.
type surface struct {
	api.Services
	api.Config
	router *httpserver.Router
}

// collect returns the metrics of all services.
func collect(services []named) []prometheus.Collector {
	var all []prometheus.Collector
	for _, s := range services {
		all = append(all, s.Collect()...)
	}
	return all
}

// ready asks the services in the order of the list. The first error is the answer; what degrades
// them is joined.
func (a *App) ready(ctx context.Context) (degraded string, err error) {
	if a.stopping.Load() {
		return "", httpserver.ErrStopping
	}
	for _, s := range a.services {
		without, err := s.Ready(ctx)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.name, err)
		}
		if without != "" {
			degraded = strings.TrimPrefix(degraded+"; "+without, "; ")
		}
	}
	return degraded, nil
}
