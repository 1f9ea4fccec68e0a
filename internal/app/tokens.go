package app

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
)

// tokensEvery is how often the file of tokens is read again, and how long a removed token
// stays in force at most. Removing all of them takes half a second more. A guess.
const tokensEvery = time.Second

// guarding lets callers with tokens in. A process without it lets anybody call.
type guarding struct {
	idle
	*auth.Tokens
	refused  httpserver.Refusals
	watching *task
}

// guards is one if the configuration has a file of tokens.
func guards(cfg Config) ([]*guarding, error) {
	if cfg.Tokens == "" {
		return nil, nil
	}
	tokens, err := auth.Open(cfg.Tokens, cfg.Logger.With("file", cfg.Tokens))
	if err != nil {
		return nil, &FlagError{"tokens", err}
	}
	return []*guarding{{Tokens: tokens}}, nil
}

func (g *guarding) Routes(s *surface) {
	s.KnownCallers, s.Public = true, g.Public
	s.router.Guard(g.Tokens, &g.refused)
}

func (g *guarding) Ready(context.Context) (degraded string, err error) {
	return labelled("tokens", g.degraded()), nil
}

func (g *guarding) degraded() string {
	switch {
	case g.Err() != nil:
		return fmt.Sprintf("those of before are in force: %v", g.Err())
	case g.Len() == 0:
		return "the file holds none, so every call is refused"
	}
	return ""
}

func (g *guarding) Collect() []prometheus.Collector {
	return samples(func() []sample { return accessSamples(g.Tokens, &g.refused) })
}

func (g *guarding) Run(ctx context.Context) error {
	return g.watching.run(ctx, func(ctx context.Context) error {
		g.Watch(ctx, tokensEvery)
		return nil
	})
}
