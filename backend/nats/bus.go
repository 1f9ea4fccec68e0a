package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countmill/countmill/backend"
)

const (
	callTimeout    = 5 * time.Second // of each attempt to connect, and of each administrative call
	publishTimeout = 10 * time.Second
	closeTimeout   = 10 * time.Second // of the last messages and acks of a subscription
	probeEvery     = 5 * time.Second  // is how often the bus looks the consumer up while it receives
	pingEvery      = 10 * time.Second // is how often the client pings the server: after two pings without an answer it connects again

	// leastPayload is the least max_payload of a server: a publisher's message has up to 512 KiB and its headers.
	leastPayload = 1 << 20
)

// A Config names a stream and says how to use it. Servers and Stream are required.
type Config struct {
	// Servers are HOST:PORT of one or more servers of the cluster.
	Servers []string
	// Stream is the name of the stream, and the subject on which Publish publishes. It is also the topic:
	// Publish and Subscribe refuse any other.
	Stream string
	// Consumer is the name of the durable consumer. Default "aggregators".
	Consumer string
	// Credentials is a file: NATS's own of a user, with a JWT and a seed, or a line USER:PASSWORD. Default
	// "": none.
	Credentials string
	// CA is a file of certificates of authorities. With it, connections must be encrypted. Default "": the
	// machine's authorities, and encryption if the server asks for it.
	CA string
	// Create makes a missing stream and consumer. Default false.
	Create bool
	// Replicas is the number of servers that keep the stream that Create makes. Default 1.
	Replicas int
	// AckWait is the ack wait of the consumer that Create makes: the messages of a process that died stay
	// hidden for as long. Default 30s.
	AckWait time.Duration
	// MaxOutstanding is the most unacked messages. Each takes a goroutine. Default 20,000.
	MaxOutstanding int
	// MaxBytes is the most bytes of unacked messages. Two of the server's largest messages are always
	// allowed. Default 128 MiB.
	MaxBytes int
	// Logger gets lost connections and harmful settings. Default discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Consumer = cmp.Or(c.Consumer, "aggregators")
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.AckWait = cmp.Or(c.AckWait, 30*time.Second)
	c.MaxOutstanding = cmp.Or(c.MaxOutstanding, 20_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 128<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports all problems at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{checkName("stream", c.Stream), checkName("consumer", c.Consumer)}
	if len(c.Servers) == 0 {
		errs = append(errs, errors.New("names no server"))
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		errs = append(errs, fmt.Errorf("replicas must be from 1 to 5, got %d", c.Replicas))
	}
	if c.AckWait < time.Second || c.MaxOutstanding < 1 || c.MaxBytes < 1 {
		errs = append(errs, fmt.Errorf("AckWait must be at least 1s, MaxOutstanding and MaxBytes at least 1, got %s, %d and %d", c.AckWait, c.MaxOutstanding, c.MaxBytes))
	}
	return errors.Join(errs...)
}

// checkName refuses characters that NATS does not accept in a name, or that have a meaning in a subject.
func checkName(what, name string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`.*>/\:`, r) }
	if name == "" || len(name) > 255 || strings.ContainsFunc(name, odd) {
		return fmt.Errorf(`the name of the %s must be 1 to 255 printable ASCII characters without . * > / \ : and spaces, got %q`, what, name)
	}
	return nil
}

// A Bus is one stream, and at most one subscription of it. All methods are safe for concurrent use.
// Close it after use.
type Bus struct {
	cfg     Config
	conn    *nats.Conn
	js      jetstream.JetStream
	gate    *backend.Gate
	counts  backend.BusCounts
	givenUp givenUp // nil if nobody takes them

	unseen atomic.Int64 // publish time of the oldest message that nobody has taken, in Unix nanoseconds; 0 if there is none
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
	b := &Bus{cfg: cfg.withDefaults(), gate: backend.NewGate("nats", cfg.Stream)}
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
	log := func(level slog.Level, text string, attr slog.Attr) {
		b.cfg.Logger.LogAttrs(b.gate.Life, level, text, attr)
	}
	options := []nats.Option{
		nats.Name("countmill"), nats.Timeout(callTimeout), nats.PingInterval(pingEvery),
		nats.MaxReconnects(-1), nats.ReconnectWait(time.Second), nats.ReconnectJitter(500*time.Millisecond, 500*time.Millisecond),
		nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				b.counts.StreamErrors.Add(1)
				log(slog.LevelWarn, "lost the connection to NATS, will connect again", slog.Any("err", err))
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			log(slog.LevelInfo, "connected to NATS again", slog.String("server", c.ConnectedAddr()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log(slog.LevelWarn, "NATS reports an error", slog.Any("err", err))
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
	if !strings.Contains(string(text), ":") {
		return nil, fmt.Errorf("credentials: %s is neither a credentials file of NATS nor a line USER:PASSWORD", b.cfg.Credentials)
	}
	// Both kinds of files are read again for each connection.
	return append(options, nats.UserInfoHandler(func() (user, password string) {
		text, _ := os.ReadFile(b.cfg.Credentials)
		user, password, _ = strings.Cut(strings.TrimSpace(string(text)), ":")
		return user, password
	})), nil
}

// largest bounds the memory of a message.
func (b *Bus) largest() int { return int(b.conn.MaxPayload()) + messageCost }

// Publish sends the messages one after the other, and waits for the stream's ack of each. To send several
// at once, call it from several goroutines. The package comment explains the errors.
//
// It sets no Nats-Msg-Id. NATS would drop a repeat by it, and so a message that NATS wrongly takes for a
// repeat; the markers in the store do the same without a guess.
func (b *Bus) Publish(topic string, messages ...*message.Message) error {
	return b.gate.Publish(topic, func() error {
		for _, m := range messages {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(m.Context()), publishTimeout)
			_, err := b.js.PublishMsg(ctx, marshal(topic, m), jetstream.WithExpectStream(b.cfg.Stream))
			cancel()
			if err != nil {
				return b.explain(err, "publish to stream "+b.cfg.Stream)
			}
		}
		return nil
	})
}

// Subscribe receives messages until ctx ends or the bus is closed. The package comment says what happens to
// messages that are here at that time. Subscribe then closes the channel. There is one subscription at a time.
func (b *Bus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return b.gate.Subscribe(ctx, topic, b.subscribe)
}

// GivenUp returns the subscriber of the messages that were delivered more than 100 times. Call it before Subscribe.
// Somebody must subscribe to it: the messages wait for that, and no other subscription gets them. Its channel
// is not closed, and Close does nothing: both belong to the bus.
func (b *Bus) GivenUp() message.Subscriber {
	b.givenUp = make(givenUp)
	return b.givenUp
}

type givenUp chan *message.Message

func (g givenUp) Subscribe(context.Context, string) (<-chan *message.Message, error) { return g, nil }

func (g givenUp) Close() error { return nil }

// Ready returns nil while messages can arrive, and otherwise the reason why not. A process that only
// publishes need not call it.
func (b *Bus) Ready() error { return b.gate.Ready() }

// Unseen returns the age of the oldest message that no process has taken, as the latest probe saw it; 0 if
// there is none.
func (b *Bus) Unseen() time.Duration {
	since := b.unseen.Load()
	if since == 0 {
		return 0
	}
	return max(time.Since(time.Unix(0, since)), 0)
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
