package app

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/publisher/ingest"
	"github.com/countmill/countmill/reader/query"
)

// routes is every route of the roles that run.
func (a *App) routes() (*api.Router, error) {
	rt := api.NewRouter(a.log)
	rt.Handle(http.MethodGet, "/healthz", http.HandlerFunc(a.healthz))
	rt.Handle(http.MethodGet, "/readyz", http.HandlerFunc(a.readyz))
	rt.Handle(http.MethodGet, "/openapi.json", api.OpenAPI())
	rt.Handle(http.MethodGet, "/metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	}))
	rt.Handle(http.MethodPost, "/v1/backup", http.HandlerFunc(a.backup))
	if a.publisher != nil {
		rt.Handle(http.MethodPost, "/v1/increments", a.ingest.guard(ingest.New(a.publisher, ingest.Config{
			Timeout: a.cfg.RequestTimeout, Horizon: a.cfg.Horizon, Logger: a.log.With("route", "increments"),
		})))
	}
	if a.reader == nil {
		return rt, nil
	}
	q, err := query.New(a.reader, query.Config{Timeout: a.cfg.RequestTimeout, Logger: a.log.With("route", "totals")})
	if err != nil {
		return nil, err
	}
	a.endStreams = q.Close
	q.Register(rt)
	return rt, nil
}

// newServer leaves handlers the time that a request may take, after the time that its
// body may take to arrive.
func newServer(h http.Handler, cfg Config) (*api.Server, error) {
	const read = 60 * time.Second
	return api.NewServer(h, api.ServerConfig{
		ReadTimeout:  read,
		WriteTimeout: read + cfg.RequestTimeout + 20*time.Second,
		Log:          cfg.Logger,
	})
}
