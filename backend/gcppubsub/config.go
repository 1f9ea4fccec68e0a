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

// A Config names a topic and how it is used. Project and Topic are required.
type Config struct {
	// Project is the id of the Google Cloud project.
	Project string

	// Topic is the id of the topic. Publish and Subscribe take no other.
	Topic string

	// Subscription is the id of the subscription. Default: none, Subscribe is refused.
	Subscription string

	// ReceiveOnly is for a process that publishes nothing: it needs no rights on the
	// topic then. Default false.
	ReceiveOnly bool

	// Create makes a topic or subscription that is missing. Default false; always on
	// against an emulator.
	Create bool

	// DeadLetterTopic is the topic to which a subscription that Create makes moves
	// messages after 100 deliveries. It is made with a subscription of the same name, as
	// Pub/Sub drops what nobody subscribes to. Default: none.
	DeadLetterTopic string

	// AnyTopic takes a subscription whatever its topic is, and makes nothing: for the one
	// that keeps what Pub/Sub gave up. Topic is then a name of ours. Needs ReceiveOnly.
	// Default false.
	AnyTopic bool

	// EmulatorHost is HOST:PORT of an emulator. Default: PUBSUB_EMULATOR_HOST.
	EmulatorHost string

	// MaxOutstanding is the most messages held unacked, at 11 KB (measured) and two
	// goroutines each. More than an aggregator holds is of no use, less keeps its windows
	// from filling. Default 20,000.
	MaxOutstanding int

	// MaxBytes is the most bytes of messages held unacked. A message that was delivered leaves
	// its bytes to the subscriber, so this is also the most memory of the others. Default 128 MiB.
	MaxBytes int

	// PublishTimeout bounds a call of Publish, and how long after its error the message
	// may still arrive. Default 10s.
	PublishTimeout time.Duration

	// AckExtension is by how much leases are extended at a time: how long the messages of
	// a process that died are hidden. From 10s to 10m. Default 10s.
	AckExtension time.Duration

	// MaxExtension is how long a message's lease is extended at all. Afterwards it goes
	// to others too, and counts as one more delivery. Default 1h.
	MaxExtension time.Duration

	// ProbeEvery is how often the subscription is asked for while messages are received.
	// Each is an administrator operation of the project's quota. Default 10s.
	ProbeEvery time.Duration

	// CloseTimeout bounds how long a subscription waits for acks to leave. Default 10s.
	CloseTimeout time.Duration

	// Logger. Default: discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.EmulatorHost = cmp.Or(c.EmulatorHost, os.Getenv(emulatorVariable))
	c.Create = (c.Create || c.EmulatorHost != "") && !c.AnyTopic
	c.MaxOutstanding = cmp.Or(c.MaxOutstanding, 20_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 128<<20)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 10*time.Second)
	c.AckExtension = cmp.Or(c.AckExtension, 10*time.Second)
	c.MaxExtension = cmp.Or(c.MaxExtension, time.Hour)
	c.ProbeEvery = cmp.Or(c.ProbeEvery, 10*time.Second)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports every problem at once.
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
		errs = append(errs, errors.New("DeadLetterTopic must be another than Topic"))
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
	if c.AckExtension < 10*time.Second || c.AckExtension > 10*time.Minute {
		errs = append(errs, fmt.Errorf("AckExtension must be from 10s to 10m, got %s", c.AckExtension))
	}
	for name, d := range map[string]time.Duration{
		"PublishTimeout": c.PublishTimeout, "MaxExtension": c.MaxExtension,
		"ProbeEvery": c.ProbeEvery, "CloseTimeout": c.CloseTimeout,
	} {
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
