package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countmill/countmill/backend"
)

// The settings of a subscription that Create makes.
const (
	ackDeadline      = 10 * time.Second
	retention        = 7 * 24 * time.Hour
	minRetry         = time.Second
	maxRetry         = 10 * time.Second
	deliveryAttempts = 100
)

// prepare makes missing topics and subscriptions if the configuration allows it, and checks the ones
// that the bus will use.
func (b *Bus) prepare(ctx context.Context) error {
	if b.cfg.Create {
		if err := b.create(ctx); err != nil {
			return err
		}
	}
	if !b.cfg.ReceiveOnly {
		if err := b.checkTopic(ctx); err != nil {
			return err
		}
	}
	if b.cfg.Subscription == "" || b.cfg.Create {
		return nil // Subscribe checks a subscription that existed before
	}
	_, err := b.lookUp(ctx)
	if !b.cfg.ReceiveOnly && status.Code(err) == codes.PermissionDenied {
		return nil // a process that only publishes may have no rights on the subscription
	}
	return err
}

// create makes the topic, the dead-letter topic and the subscription. Other processes may do the same
// at the same time.
func (b *Bus) create(ctx context.Context) error {
	topics := []string{b.cfg.topicName()}
	dead := ""
	if b.cfg.DeadLetterTopic != "" {
		dead = "projects/" + b.cfg.Project + "/topics/" + b.cfg.DeadLetterTopic
		topics = append(topics, dead)
	}
	for _, name := range topics {
		if err := b.createTopic(ctx, name); err != nil {
			return err
		}
	}
	if dead != "" {
		keep := subscriptionOf("projects/"+b.cfg.Project+"/subscriptions/"+b.cfg.DeadLetterTopic, dead)
		if err := b.createSubscription(ctx, keep); err != nil {
			return err
		}
	}
	if b.cfg.Subscription == "" {
		return nil
	}
	s := subscriptionOf(b.cfg.subscriptionName(), b.cfg.topicName())
	if dead != "" {
		s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: deliveryAttempts}
	}
	return b.createSubscription(ctx, s)
}

// subscriptionOf is a subscription with the settings that docs/howto/google-cloud.md gives it.
func subscriptionOf(name, topic string) *pubsubpb.Subscription {
	return &pubsubpb.Subscription{
		Name:                     name,
		Topic:                    topic,
		AckDeadlineSeconds:       int32(ackDeadline / time.Second),
		MessageRetentionDuration: durationpb.New(retention),
		ExpirationPolicy:         &pubsubpb.ExpirationPolicy{}, // without a TTL the subscription never expires
		RetryPolicy: &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(minRetry),
			MaximumBackoff: durationpb.New(maxRetry),
		},
	}
}

// createTopic looks for the topic first: more callers may look than create. Without rights on the topic it
// goes on: somebody else made it, or the next call fails. A process that only receives needs no such rights.
func (b *Bus) createTopic(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := b.admin.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
	if status.Code(err) == codes.PermissionDenied {
		return nil
	}
	if status.Code(err) != codes.NotFound {
		return b.explain(err, "topic "+name)
	}
	_, err = b.admin.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: name})
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return b.explain(err, "create topic "+name)
}

// createSubscription leaves the retry policy out against Google's emulator. With one, the emulator
// stops redelivering after several messages of a killed process expire again in the same millisecond:
// it lists one of them twice, does not find it the second time, and its redelivery thread ends.
func (b *Bus) createSubscription(ctx context.Context, s *pubsubpb.Subscription) error {
	if b.cfg.EmulatorHost != "" {
		s.RetryPolicy = nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := b.admin.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: s.Name})
	if status.Code(err) != codes.NotFound {
		return b.explain(err, "subscription "+s.Name)
	}
	_, err = b.admin.SubscriptionAdminClient.CreateSubscription(ctx, s)
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return b.explain(err, "create subscription "+s.Name)
}

// checkTopic also looks for a subscription of the topic: a message published without one is lost.
func (b *Bus) checkTopic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := b.cfg.topicName()
	if _, err := b.admin.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name}); err != nil {
		return b.explain(err, "topic "+name)
	}
	_, err := b.admin.TopicAdminClient.ListTopicSubscriptions(ctx, &pubsubpb.ListTopicSubscriptionsRequest{Topic: name, PageSize: 1}).Next()
	if errors.Is(err, iterator.Done) {
		return backend.Remedied(fmt.Errorf("topic %s has no subscription, and Pub/Sub drops messages published to it", name), b.subscriptionCommand())
	}
	return b.explain(err, "topic "+name)
}

// lookUp gets the subscription. It returns an error if this process cannot use it.
func (b *Bus) lookUp(ctx context.Context) (*pubsubpb.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := b.cfg.subscriptionName()
	s, err := b.admin.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: name})
	switch {
	case err != nil:
		return nil, b.explain(err, "subscription "+name)
	case s.Topic == "_deleted-topic_":
		return nil, backend.Remedied(fmt.Errorf("the topic of subscription %s was deleted, so it gets no more messages", name), "delete it and "+b.subscriptionCommand())
	case s.Topic != b.cfg.topicName() && !b.cfg.AnyTopic:
		return nil, backend.Remedied(fmt.Errorf("subscription %s belongs to %s, not to %s", name, s.Topic, b.cfg.topicName()), "name a subscription of the topic in --bus, or the subscription's topic")
	case s.Detached:
		return nil, backend.Remedied(fmt.Errorf("subscription %s is detached from its topic, so it gets no more messages", name), "delete it and "+b.subscriptionCommand())
	case s.PushConfig.GetPushEndpoint() != "" || s.BigqueryConfig != nil || s.CloudStorageConfig != nil:
		return nil, backend.Remedied(fmt.Errorf("subscription %s pushes its messages elsewhere", name), "name a pull subscription in --bus")
	}
	return s, nil
}

// warn logs the subscription's settings that cause harm.
func (b *Bus) warn(s *pubsubpb.Subscription) {
	var harm []string
	for _, h := range harmful(s) {
		harm = append(harm, h.what)
	}
	if len(harm) > 0 {
		b.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "the subscription has harmful settings",
			slog.String("subscription", s.Name), slog.String("settings", strings.Join(harm, "; ")))
	}
}

// A harm is a setting of a subscription that causes harm: its effect, and the flags of `gcloud
// pubsub subscriptions update` that change it; empty if only another subscription helps.
type harm struct{ what, flags string }

func harmful(s *pubsubpb.Subscription) []harm {
	var all []harm
	add := func(bad bool, what, flags string) {
		if bad {
			all = append(all, harm{what, flags})
		}
	}
	add(s.Filter != "", "a filter drops messages uncounted", "")
	add(len(s.MessageTransforms) > 0, "message transforms change or drop messages uncounted", "--clear-message-transforms")
	add(s.EnableMessageOrdering, "message ordering makes batches small", "")
	add(s.EnableExactlyOnceDelivery, "exactly-once delivery is slower and has no benefit here", "--no-enable-exactly-once-delivery")
	add(s.ExpirationPolicy.GetTtl() != nil, "the subscription expires when unused", "--expiration-period=never")
	add(s.MessageRetentionDuration != nil && s.MessageRetentionDuration.AsDuration() < 24*time.Hour, "messages are kept for less than a day", "--message-retention-duration=7d")
	dead := s.DeadLetterPolicy
	add(dead != nil && dead.MaxDeliveryAttempts < deliveryAttempts,
		fmt.Sprintf("fewer than %d delivery attempts move messages away during an outage", deliveryAttempts), fmt.Sprintf("--max-delivery-attempts=%d", deliveryAttempts))
	return all
}

// explain adds the remedy to errors that a person must resolve. It returns nil for nil.
func (b *Bus) explain(err error, what string) error {
	hint := ""
	code := status.Code(err)
	if errors.Is(err, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	switch code {
	case codes.OK:
		return nil
	case codes.NotFound:
		hint = b.missing(what)
	case codes.PermissionDenied:
		hint = "grant roles/pubsub.publisher and roles/pubsub.viewer on the topic to publishers, " +
			"roles/pubsub.subscriber and roles/pubsub.viewer on the subscription to aggregators"
	case codes.Unauthenticated:
		hint = credentialsHint
	case codes.Unavailable, codes.DeadlineExceeded:
		hint = "Pub/Sub does not answer: check the network, and the status of Google Cloud"
		if b.cfg.EmulatorHost != "" {
			hint = "is the emulator at " + b.cfg.EmulatorHost + " running?"
		}
	}
	if hint != "" {
		return backend.Remedied(fmt.Errorf("%s: %w", what, err), hint)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// missing returns the command that creates the missing topic or subscription.
func (b *Bus) missing(what string) string {
	if strings.Contains(what, "subscription") {
		return b.subscriptionCommand()
	}
	return "create it: gcloud pubsub topics create " + b.cfg.Topic + " --project=" + b.cfg.Project
}

func (b *Bus) subscriptionCommand() string {
	name := b.cfg.Subscription
	if name == "" {
		name = "SUBSCRIPTION"
	}
	return fmt.Sprintf("create it: gcloud pubsub subscriptions create %s --topic=%s --project=%s --ack-deadline=10 "+
		"--message-retention-duration=7d --expiration-period=never --min-retry-delay=1s --max-retry-delay=10s",
		name, b.cfg.Topic, b.cfg.Project)
}
