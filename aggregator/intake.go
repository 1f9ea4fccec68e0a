package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/time/rate"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// IntakeConfig sets up an Intake. The zero value works.
type IntakeConfig struct {
	// Topic is the topic to subscribe to. Default "countmill".
	Topic string
	// Rate is the most dead letters written in a second. Default 100.
	Rate int
	// Timeout bounds each write to the store. Default 10s.
	Timeout time.Duration
	// Logger gets retries and written letters. Default: discards.
	Logger *slog.Logger

	env *clock.Env // of a simulation (clock.With), otherwise nil
}

var _ = clock.Hook(func(c *IntakeConfig, e *clock.Env) { c.env = e })

// An Intake writes a dead letter for each message that a broker gave up delivering and moved
// aside. Each letter says maybe applied, because the broker knows only of acknowledgements.
type Intake struct {
	bus        Bus
	letters    store.DeadLetters
	cfg        IntakeConfig
	limiter    *rate.Limiter
	taken      atomic.Int64
	writtenLog writtenLog
}

// NewIntake returns an intake that reads bus and writes letters.
func NewIntake(bus Bus, letters store.DeadLetters, cfg IntakeConfig) *Intake {
	cfg.Topic = cmp.Or(cfg.Topic, "countmill")
	cfg.Rate = max(cmp.Or(cfg.Rate, 100), 1)
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Intake{bus: bus, letters: letters, cfg: cfg, limiter: rate.NewLimiter(rate.Limit(cfg.Rate), cfg.Rate)}
}

// Taken returns the number of letters written so far.
func (in *Intake) Taken() int64 { return in.taken.Load() }

// Run takes messages until ctx ends. It acknowledges a message when its letter is written, and
// retries until then. It returns nil, or an error if the bus was closed before.
func (in *Intake) Run(ctx context.Context) error {
	for attempts := 0; ctx.Err() == nil; attempts++ {
		messages, err := in.bus.Subscribe(ctx, in.cfg.Topic)
		switch {
		case err == nil:
			attempts = 0
			in.takeAll(ctx, messages)
		case errors.Is(err, countmill.ErrClosed):
			return fmt.Errorf("intake of dead letters: subscribe: %w", err)
		case ctx.Err() == nil:
			in.cfg.Logger.Warn("not subscribed to undeliverable messages, will try again", "topic", in.cfg.Topic, "err", err)
		}
		clock.Sleep(ctx, in.backoff(attempts))
	}
	in.writtenLog.write(in.cfg.Logger, in.writtenLog.next)
	return nil
}

// takeAll takes messages until the channel is closed or ctx ends.
func (in *Intake) takeAll(ctx context.Context, messages <-chan *message.Message) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-second.C:
			in.writtenLog.write(in.cfg.Logger, time.Now())
		case m, ok := <-messages:
			if !ok {
				return
			}
			if !in.take(ctx, m) {
				m.Nack()
			}
		case <-ctx.Done():
			return
		}
	}
}

// take writes the letter of a message, retries until that succeeds, and acknowledges the message.
// It reports false if ctx ended first.
func (in *Intake) take(ctx context.Context, m *message.Message) bool {
	d := givenUp(m, time.Now())
	for attempts := 1; in.limiter.Wait(ctx) == nil; attempts++ {
		if err := in.put(ctx, d); err != nil {
			in.cfg.Logger.Warn("dead letter not written, will try again", "source", d.Source, "attempts", attempts, "err", err)
			clock.Sleep(ctx, in.backoff(attempts))
			continue
		}
		in.taken.Add(1)
		in.writtenLog.add(&d)
		in.writtenLog.write(in.cfg.Logger, time.Now())
		m.Ack()
		return true
	}
	return false
}

// put writes a letter. The end of ctx does not abort it: the write may be under way.
func (in *Intake) put(ctx context.Context, d store.DeadLetter) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), in.cfg.Timeout)
	defer cancel()
	return in.letters.PutDeadLetters(ctx, []store.DeadLetter{d})
}

func (in *Intake) backoff(attempts int) time.Duration {
	return in.cfg.env.Backoff(attempts, 100*time.Millisecond, 30*time.Second)
}

// givenUp makes the letter of a message. Its time is the first publish time if that is known. The
// copy's is later, and would make parts look younger than their markers.
func givenUp(m *message.Message, now time.Time) store.DeadLetter {
	d := store.DeadLetter{Source: sourceOf(m), Payload: m.Payload, Maybe: true, At: now}
	d.Reason = cmp.Or(m.Metadata.Get(wire.MetaGivenUp), "given up by the bus")
	for _, name := range []string{wire.MetaFirstPublished, wire.MetaPublished} {
		if t, err := brokersTime(m, name); err == nil {
			d.Time = t
			break
		}
	}
	d.Key = deadLetterKey(d.Source, "given up", m.Payload)
	return d
}
