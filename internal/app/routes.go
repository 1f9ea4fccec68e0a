package app

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countmill/countmill/admin/letters"
	"github.com/countmill/countmill/admin/manage"
	"github.com/countmill/countmill/admin/verify"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/morgue"
	"github.com/countmill/countmill/publisher/ingest"
	"github.com/countmill/countmill/reader/query"
)

// routes is every route of the roles that run.
func (a *App) routes() (*api.Router, error) {
	rt := api.NewRouter(a.log)
	if a.tokens != nil {
		rt.Guard(a.tokens, &a.refused)
	}
	rt.AllowOrigins(a.cfg.CORSOrigins...)
	rt.Handle(http.MethodGet, "/healthz", access.Anyone, http.HandlerFunc(a.healthz))
	rt.Handle(http.MethodGet, "/readyz", access.Anyone, http.HandlerFunc(a.readyz))
	rt.Handle(http.MethodGet, "/openapi.json", access.Anyone, api.OpenAPI())
	// They name no counter: PerCounter has nothing to ask.
	rt.Handle(http.MethodGet, "/metrics", access.PerCounter(access.Metrics), promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	}))
	rt.Handle(http.MethodPost, "/v1/backup", access.Whole(access.Admin), http.HandlerFunc(a.backup))
	if a.publisher != nil {
		rt.Handle(http.MethodPost, "/v1/increments", access.PerCounter(access.Publish), a.ingest.guard(ingest.New(a.publisher, a.ingestConfig())))
	}
	if a.backends.store != nil {
		a.lookAfter(rt)
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
	manage.New(a.admin, manage.Config{Logger: a.log.With("route", "admin")}).Register(rt)
	return rt, nil
}

// busAway is how long a bus on another machine may take for a message without being thought
// slow. A guess: Pub/Sub takes a tenth of it.
const busAway = time.Second

func (a *App) ingestConfig() ingest.Config {
	cfg := ingest.Config{
		Timeout: a.cfg.RequestTimeout, DedupWindowFunc: a.window, Logger: a.log.With("route", "increments"),
		Admit: a.space.admit,
		// Half of the publisher's open batch: 64 bytes of JSON take some 224 bytes there.
		MaxSending: min(a.cfg.OpenEntries/2, a.cfg.OpenBytes/448),
		Bus:        max(a.cfg.Linger, 0),
	}
	if a.cfg.Linger == 0 {
		cfg.Bus = a.cfg.CountWithin
	}
	if !a.backends.inProcess {
		cfg.Bus += busAway
	}
	return cfg
}

// lookAfter adds what a person does to the store. Aggregators serve it too: they have
// the right to write.
func (a *App) lookAfter(rt *api.Router) {
	dead := letters.New(morgue.Morgue{Store: a.backends.store, Explain: forbidden}, letters.Config{})
	letters.NewHandler(dead, letters.HandlerConfig{Logger: a.log.With("route", "dead")}).Register(rt)
	var totals verify.Totals
	if cache, ok := a.backends.cache.(droppable); ok {
		totals = past{a.backends.store, cache}
	}
	verifier := verify.New(surveyed{a.backends.store}, recorder{a.backends.store}, totals)
	verify.NewHandler(verifier, verify.HandlerConfig{Logger: a.log.With("route", "verify")}).Register(rt)
}

// newServer leaves handlers the time that a request may take, after the time that its
// body may take to arrive.
func newServer(h http.Handler, cfg Config) (*api.Server, error) {
	const read = 60 * time.Second
	return api.NewServer(h, api.ServerConfig{
		ReadTimeout:  read,
		WriteTimeout: read + cfg.RequestTimeout + 20*time.Second,
		MaxConns:     cfg.Connections,
		Log:          cfg.Logger,
	})
}
