package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill/sequence"
)

// issuing gives out values of sequences, in each process with an aggregator or a reader.
type issuing struct {
	idle
	*sequence.Issuer
	log *slog.Logger
}

func newIssuing(cfg Config, b *backends) (issuing, error) {
	x, err := sequence.New(b.store, sequence.Config{Timeout: cfg.RequestTimeout, Logger: cfg.Logger.With("role", "sequences")})
	return issuing{Issuer: x, log: cfg.Logger}, err
}

func (s issuing) Routes(to *surface) { to.Sequences = s.Issuer }

func (s issuing) Collect() []prometheus.Collector {
	return samples(func() []sample { return sequenceSamples(s.Issuer) })
}

// Stop refuses new calls and finishes those it has. It does not fail: a caller whose call is cut learns that its
// outcome is unknown.
func (s issuing) Stop(ctx context.Context) error {
	if err := s.Close(ctx); err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "sequences stopped early", slog.Any("err", err))
	}
	return nil
}

func sequenceSamples(x *sequence.Issuer) []sample {
	s := x.Stats()
	return []sample{
		counter("countmill_sequence_calls_total", "Requests that got values of a sequence, repeats included.", s.Calls),
		counter("countmill_sequence_values_total", "Values that those requests got.", s.Values),
		counter("countmill_sequence_transactions_total", "Transactions for values that were tried.", s.Transactions),
		counter("countmill_sequence_failures_total", "Transactions for values that ended with an error; they are repeated.", s.Failures),
		gauge("countmill_sequence_waiting_calls", "Requests for values that wait for a transaction.", float64(s.Waiting)),
	}
}

// Sequences gives out the values of sequences; nil without an aggregator and a reader.
func (a *App) Sequences() *sequence.Issuer {
	for _, of := range a.services {
		if s, ok := of.service.(issuing); ok {
			return s.Issuer
		}
	}
	return nil
}
