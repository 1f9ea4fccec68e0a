package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	emulatorVariable = "PUBSUB_EMULATOR_HOST"

	// detectTimeout bounds the search for credentials, which asks the network whether this machine runs
	// on Google Cloud.
	detectTimeout = 4 * time.Second

	// callTimeout bounds each administrative call.
	callTimeout = 10 * time.Second

	// aliveAfter is how long a connection may be silent before the client pings it; aliveWithin is how
	// long the answer may take. Google's client pings after 5 minutes, and never if it finds the
	// emulator's variable. Until then a connection whose other end is gone accepts every call and
	// answers none.
	aliveAfter  = time.Minute
	aliveWithin = 20 * time.Second

	// maxReconnect is the longest delay before a broken connection is tried again. gRPC's own limit of
	// two minutes would prolong an outage.
	maxReconnect = 10 * time.Second
)

// Open connects to Pub/Sub and makes sure that topic and subscription exist. It takes at most some
// seconds, and less if there are no credentials.
func Open(ctx context.Context, cfg Config) (*Bus, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("gcppubsub: %w", err)
	}
	return openChecked(ctx, cfg)
}

func openChecked(ctx context.Context, cfg Config) (*Bus, error) {
	b := newBus(cfg)
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("gcppubsub: %w", err), b.Close())
	}
	return b, nil
}

func (b *Bus) open(ctx context.Context) error {
	var err error
	if b.options, err = b.cfg.options(ctx, credentials.DetectDefault); err != nil {
		return err
	}
	if b.admin, err = pubsub.NewClient(ctx, b.cfg.Project, slices.Concat(b.options, []option.ClientOption{option.WithGRPCConnectionPool(1)})...); err != nil {
		return err
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if b.cfg.ReceiveOnly {
		return nil
	}
	b.publisher, err = googlecloud.NewPublisher(googlecloud.PublisherConfig{
		ProjectID:                b.cfg.Project,
		DoNotCheckTopicExistence: true, // prepare has checked it, and NotFound reports it later
		PublishTimeout:           b.cfg.PublishTimeout,
		PublishSettings:          b.cfg.publishSettings(),
		ClientOptions:            b.options,
	}, newLogger(b.cfg.Logger))
	return err
}

// options returns the endpoint and the credentials.
func (c Config) options(ctx context.Context, detect detectFunc) ([]option.ClientOption, error) {
	reconnect := option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect}, MinConnectTimeout: callTimeout,
	}))
	alive := option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time: aliveAfter, Timeout: aliveWithin, PermitWithoutStream: true,
	}))
	if c.EmulatorHost != "" {
		return []option.ClientOption{
			reconnect,
			alive,
			option.WithEndpoint(c.EmulatorHost),
			option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
			option.WithTelemetryDisabled(),
		}, nil
	}
	creds, err := findCredentials(ctx, detect)
	if err != nil {
		return nil, err
	}
	return []option.ClientOption{reconnect, alive, option.WithAuthCredentials(creds)}, nil
}

type detectFunc func(*credentials.DetectOptions) (*auth.Credentials, error)

// findCredentials gives up after detectTimeout, because detect takes no context.
func findCredentials(ctx context.Context, detect detectFunc) (*auth.Credentials, error) {
	type answer struct {
		creds *auth.Credentials
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		creds, err := detect(&credentials.DetectOptions{Scopes: []string{pubsub.ScopePubSub}})
		answers <- answer{creds, err}
	}()
	ctx, cancel := context.WithTimeout(ctx, detectTimeout)
	defer cancel()
	var found answer
	select {
	case found = <-answers:
	case <-ctx.Done():
		found.err = ctx.Err()
	}
	if found.err != nil {
		return nil, fmt.Errorf("no application default credentials: %w (%s)", found.err, credentialsHint)
	}
	return found.creds, nil
}

const credentialsHint = "run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS, " +
	"or set " + emulatorVariable + " to use an emulator"

func (c Config) publishSettings() *pubsub.PublishSettings {
	s := pubsub.DefaultPublishSettings
	// A message is a batch already, so waiting for others gains little.
	s.DelayThreshold = time.Millisecond
	// The client must not retry a message for long after its call has ended: a copy is under way.
	s.Timeout = c.PublishTimeout
	s.FlowControlSettings = pubsub.FlowControlSettings{
		MaxOutstandingMessages: 10_000,
		MaxOutstandingBytes:    128 << 20,
		LimitExceededBehavior:  pubsub.FlowControlBlock,
	}
	return &s
}

func (c Config) receiveSettings() pubsub.ReceiveSettings {
	return pubsub.ReceiveSettings{
		MaxExtension:               maxExtension,
		MaxDurationPerAckExtension: ackExtension,
		MaxOutstandingMessages:     c.MaxOutstanding,
		MaxOutstandingBytes:        c.MaxBytes,
		// One stream carries 10 MB/s. Each further stream would be sent MaxOutstanding messages, which
		// would wait here while other processes have nothing to do.
		NumGoroutines:              1,
		EnablePerStreamFlowControl: true,
	}
}
