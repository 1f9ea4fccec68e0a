package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countmill/countmill/backend"
)

const (
	// connectTimeout bounds each attempt to connect to a server.
	connectTimeout = 5 * time.Second

	// callTimeout bounds each administrative call.
	callTimeout = 5 * time.Second

	// publishTimeout bounds the sending of a message.
	publishTimeout = 10 * time.Second

	// probeEvery is how often the bus looks the consumer up while it receives.
	probeEvery = 5 * time.Second

	// closeTimeout bounds how long a subscription waits for its last acks to be sent.
	closeTimeout = 10 * time.Second

	// pingEvery is how often the client pings the server. After two pings without an answer it connects again.
	pingEvery = 10 * time.Second

	// leastPayload is the least max_payload of a server: a publisher's message has up to 512 KiB and its headers.
	leastPayload = 1 << 20
)

// A Bus is one stream, and at most one subscription of it. All methods are safe for concurrent use.
// Close it after use.
type Bus struct {
	cfg     Config
	conn    *nats.Conn
	js      jetstream.JetStream
	gate    *backend.Gate
	counts  backend.BusCounts
	givenUp chan *message.Message // nil if nobody takes them

	mu     sync.Mutex // guards the fields below
	probe  error      // of the latest probe
	unseen time.Time  // publish time of the oldest message that nobody has taken; zero if there is none
}

var _ backend.Channel = (*Bus)(nil)

// Open connects to NATS, and makes sure that the stream exists, and the consumer if Create is on.
func Open(ctx context.Context, cfg Config) (*Bus, error) {
	b, err := connect(cfg)
	if err == nil {
		_, err = b.prepare(ctx)
	}
	if err != nil {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
		return nil, fmt.Errorf("nats: %w", err)
	}
	return b, nil
}

func connect(cfg Config) (*Bus, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg.withDefaults(), gate: backend.NewGate("nats")}
	options, err := b.options()
	if err != nil {
		return nil, err
	}
	if b.conn, err = nats.Connect("nats://"+strings.Join(b.cfg.Servers, ",nats://"), options...); err != nil {
		return nil, b.explain(err, "connect to "+strings.Join(b.cfg.Servers, ","))
	}
	b.cfg.MaxBytes = max(b.cfg.MaxBytes, 2*b.largest())
	b.js, err = jetstream.New(b.conn)
	return b, err
}

// options has no buffer for the time without a connection: Publish then fails at once, and an ack waits.
func (b *Bus) options() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name("countmill"), nats.Timeout(connectTimeout), nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1), nats.ReconnectWait(time.Second), nats.ReconnectJitter(500*time.Millisecond, 500*time.Millisecond),
		nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				b.counts.StreamErrors.Add(1)
				b.cfg.Logger.LogAttrs(b.gate.Life, slog.LevelWarn, "lost the connection to NATS, will connect again", slog.Any("err", err))
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			b.cfg.Logger.LogAttrs(b.gate.Life, slog.LevelInfo, "connected to NATS again", slog.String("server", c.ConnectedAddr()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.cfg.Logger.LogAttrs(b.gate.Life, slog.LevelWarn, "NATS reports an error", slog.Any("err", err))
		}),
	}
	if b.cfg.CA != "" {
		options = append(options, nats.RootCAs(b.cfg.CA))
	}
	if b.cfg.Credentials == "" {
		return options, nil
	}
	text, err := os.ReadFile(b.cfg.Credentials)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if strings.Contains(string(text), "NATS USER JWT") {
		return append(options, nats.UserCredentials(b.cfg.Credentials)), nil
	}
	user, password, ok := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !ok {
		return nil, fmt.Errorf("credentials: %s is neither a credentials file of NATS nor a line USER:PASSWORD", b.cfg.Credentials)
	}
	return append(options, nats.UserInfo(user, password)), nil
}

// largest bounds the memory of a message.
func (b *Bus) largest() int { return int(b.conn.MaxPayload()) + messageCost }

// Publish sends the messages one after the other, and waits for the stream's ack of each. To send several
// at once, call it from several goroutines. The package comment explains the errors.
//
// It sets no Nats-Msg-Id. NATS would drop a repeat by it, and so a message that NATS wrongly takes for a
// repeat; the markers in the store do the same without a guess.
func (b *Bus) Publish(topic string, messages ...*message.Message) error {
	if err := b.checkTopic(topic); err != nil {
		return err
	}
	done, err := b.gate.Publish()
	if err != nil {
		return err
	}
	defer done()
	for _, m := range messages {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(m.Context()), publishTimeout)
		_, err := b.js.PublishMsg(ctx, marshal(topic, m), jetstream.WithExpectStream(b.cfg.Stream))
		cancel()
		if err != nil {
			return fmt.Errorf("nats: %w", b.explain(err, "publish to stream "+b.cfg.Stream))
		}
	}
	return nil
}

func (b *Bus) checkTopic(topic string) error {
	if topic != b.cfg.Stream {
		return fmt.Errorf("nats: this bus carries topic %q, not %q", b.cfg.Stream, topic)
	}
	return nil
}

// Subscribe receives messages until ctx ends or the bus is closed. The package comment says what happens to
// messages that are here at that time. Subscribe then closes the channel. There is one subscription at a time.
func (b *Bus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := b.checkTopic(topic); err != nil {
		return nil, err
	}
	done, err := b.gate.Subscribe()
	if err != nil {
		return nil, err
	}
	s, err := b.subscribe(ctx)
	if err != nil {
		done(nil)
		return nil, fmt.Errorf("nats: %w", err)
	}
	go func() {
		s.run()
		done(nil)
		close(s.out) // last, because a receiver of the close may subscribe again
	}()
	return s.out, nil
}

// GivenUp returns the bus of the messages that were delivered more than 100 times. Call it before Subscribe.
// Somebody must subscribe to it: the messages wait for that, and no other subscription gets them. Its channel
// is not closed, and Close does nothing: both belong to the bus.
func (b *Bus) GivenUp() backend.Channel {
	b.givenUp = make(chan *message.Message)
	return givenUp{b}
}

type givenUp struct{ b *Bus }

func (g givenUp) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return g.b.givenUp, nil
}

func (g givenUp) Publish(string, ...*message.Message) error {
	return errors.New("nats: nothing is published among the messages that are given up")
}

func (g givenUp) Close() error { return nil }

// Ready returns nil while messages can arrive, and otherwise the reason why not. A process that only
// publishes need not call it.
func (b *Bus) Ready() error {
	if err := b.gate.Ready(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.probe
}

// Unseen returns the age of the oldest message that no process has taken, as the latest probe saw it; 0 if
// there is none.
func (b *Bus) Unseen() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unseen.IsZero() {
		return 0
	}
	return max(time.Since(b.unseen), 0)
}

// Close ends the subscription as the end of its context does, waits for calls of Publish, and disconnects.
// Close the bus after its publisher and aggregator: later calls return countmill.ErrClosed. A second call
// does nothing.
func (b *Bus) Close() error {
	_ = b.gate.Close() // subscriptions end with nil
	b.conn.Close()
	return nil
}

// Stats returns the counts since Open.
func (b *Bus) Stats() backend.BusStats { return b.counts.Stats() }
