package nats

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
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
