package gcppubsub

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"
)

const (
	// ackExtension is the length of a lease, each time that it is extended. The messages of a process that died stay hidden
	// for as long.
	ackExtension = 10 * time.Second
	// maxExtension is how long a message's lease is extended in total. After it, Pub/Sub delivers the message again, to any
	// process.
	maxExtension = time.Hour
	// closeTimeout bounds how long a subscription waits for its last acks to be sent.
	closeTimeout = 10 * time.Second
)

// A Config names a topic and says how to use it. Project and Topic are required.
type Config struct {
	// Project is the id of the Google Cloud project.
	Project string

	// Topic is the id of the topic. Publish and Subscribe refuse any other topic.
	Topic string

	// Subscription is the id of the subscription. Default "": Subscribe returns an error.
	Subscription string

	// ReceiveOnly is for a process that publishes nothing. It then needs no rights on the topic.
	// Default false.
	ReceiveOnly bool

	// Create makes a missing topic or subscription. Default false; always true against an emulator.
	Create bool

	// DeadLetterTopic is the topic to which Pub/Sub moves a message after 100 deliveries, if Create
	// makes the subscription. Create also makes this topic and a subscription of the same name, because
	// Pub/Sub drops messages of a topic without a subscription. Default "": none.
	DeadLetterTopic string

	// AnyTopic accepts a subscription of any topic, and makes nothing. It is for reading the
	// subscription of a dead-letter topic. Topic is then only a local name. Needs ReceiveOnly. Default
	// false.
	AnyTopic bool

	// EmulatorHost is HOST:PORT of an emulator. Default: PUBSUB_EMULATOR_HOST.
	EmulatorHost string

	// MaxOutstanding is the most unacked messages. Each takes 11 KB (measured) and two goroutines. More
	// than an aggregator holds has no use; fewer keep its windows from filling. Default 20,000.
	MaxOutstanding int

	// MaxBytes is the most bytes of unacked messages. A delivered message's bytes belong to the
	// subscriber, so this also bounds the memory of the undelivered ones. Default 128 MiB.
	MaxBytes int

	// PublishTimeout bounds a call of Publish. After an error, the message may still arrive for as
	// long. Default 10s.
	PublishTimeout time.Duration

	// ProbeEvery is how often the bus looks the subscription up while it receives. Each look-up is an
	// administrator operation of the project's quota. Default 10s.
	ProbeEvery time.Duration

	// Logger gets changes and harmful settings. Default discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.EmulatorHost = cmp.Or(c.EmulatorHost, os.Getenv(emulatorVariable))
	c.Create = (c.Create || c.EmulatorHost != "") && !c.AnyTopic
	c.MaxOutstanding = cmp.Or(c.MaxOutstanding, 20_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 128<<20)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 10*time.Second)
	c.ProbeEvery = cmp.Or(c.ProbeEvery, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports all problems at once.
func (c Config) validate() error {
	var errs []error
	if c.Project == "" || strings.ContainsAny(c.Project, "/ ") {
		errs = append(errs, fmt.Errorf("Project must be the id of a project, got %q", c.Project))
	}
	errs = append(errs, checkID("Topic", c.Topic))
	if c.Subscription != "" {
		errs = append(errs, checkID("Subscription", c.Subscription))
	}
	if c.DeadLetterTopic != "" {
		errs = append(errs, checkID("DeadLetterTopic", c.DeadLetterTopic))
	}
	if c.DeadLetterTopic == c.Topic && c.Topic != "" {
		errs = append(errs, errors.New("DeadLetterTopic must differ from Topic"))
	}
	if c.ReceiveOnly && c.Subscription == "" {
		errs = append(errs, errors.New("Subscription must be set with ReceiveOnly"))
	}
	if c.AnyTopic && !c.ReceiveOnly {
		errs = append(errs, errors.New("AnyTopic needs ReceiveOnly"))
	}
	if c.MaxOutstanding < 1 || c.MaxBytes < 1 {
		errs = append(errs, fmt.Errorf("MaxOutstanding and MaxBytes must be at least 1, got %d and %d", c.MaxOutstanding, c.MaxBytes))
	}
	for name, d := range map[string]time.Duration{"PublishTimeout": c.PublishTimeout, "ProbeEvery": c.ProbeEvery} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive, got %s", name, d))
		}
	}
	return errors.Join(errs...)
}

var validID = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._~%+-]{2,254}$`)

func checkID(field, id string) error {
	if validID.MatchString(id) && !strings.HasPrefix(id, "goog") {
		return nil
	}
	return fmt.Errorf("%s must be 3 to 255 letters, digits and -._~%%+, begin with a letter and not with goog, got %q", field, id)
}

func (c Config) topicName() string { return "projects/" + c.Project + "/topics/" + c.Topic }

func (c Config) subscriptionName() string {
	return "projects/" + c.Project + "/subscriptions/" + c.Subscription
}
