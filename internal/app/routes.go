package app

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/httpapi"
	"github.com/countmill/countmill/internal/page"
)

// newHTTP makes the HTTP API of the roles that run.
func (a *App) newHTTP() (*httpapi.API, error) {
	return httpapi.New(a.services(), httpapi.Config{
		Roles: a.cfg.Roles.Names(), Increments: a.incrementsConfig(), Timeout: a.cfg.RequestTimeout,
		KnownCallers: a.tokens != nil, Logger: a.log,
	})
}

// routes is every route.
func (a *App) routes() *api.Router {
	rt := api.NewRouter(a.log)
	if a.tokens != nil {
		rt.Guard(a.tokens, &a.refused)
	}
	rt.AllowOrigins(a.cfg.CORSOrigins...)
	a.http.Register(rt)
	if a.reader != nil {
		p := page.New()
		rt.Files(p.Paths(), p)
	}
	return rt
}

// services returns the services of this process's roles for callers.
func (a *App) services() httpapi.Services {
	s := httpapi.Services{Ready: a.ready, Metrics: promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})}
	if a.backends.disk != nil {
		s.Backup = a.takeBackup
	}
	if a.tokens != nil {
		s.Public = a.tokens.Public
	}
	if a.publisher != nil {
		s.Sender = a.publisher
	}
	if a.reader != nil {
		s.Reader, s.Admin = a.reader, a.admin
	}
	if a.backends.store == nil {
		return s
	}
	// A person looks after the store by way of any process that has it. Aggregators have the
	// right to write.
	s.DeadLetters = admin.NewDeadLetters(a.backends.store, admin.DeadLettersConfig{})
	var totals admin.Totals
	if cache, ok := a.backends.cache.(droppable); ok {
		totals = past{a.backends.store, cache}
	}
	s.Verifier = admin.NewVerifier(a.backends.store, a.backends.store, totals)
	return s
}

// busAway is how long a bus on another machine may take for a message without being thought
// slow. A guess: Pub/Sub takes a tenth of it.
const busAway = time.Second

func (a *App) incrementsConfig() httpapi.IncrementsConfig {
	cfg := httpapi.IncrementsConfig{
		Timeout: a.cfg.RequestTimeout, DedupWindowFunc: a.window,
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
