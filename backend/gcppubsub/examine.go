package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/backend"
)

// The checks of an examination.
const (
	checkTopic         = "topic"
	checkSubscription  = "subscription"
	checkAckDeadline   = "ack deadline"
	checkGivenUp       = "dead letters of Pub/Sub"
	checkPubSubRights  = "permissions of Pub/Sub"
	checkPubSubReached = "reachability of Pub/Sub"
)

// longestDeadline is the longest ack deadline without a finding. countmill extends leases by 10 s at a
// time, so a longer deadline only delays messages of a killed process. A guess.
const longestDeadline = time.Minute

// Examine looks for mistakes of the topic and of the subscription, and makes neither. With
// DeadLetterTopic it also looks for the subscription of that name. Each call to Pub/Sub takes at most
// 10 s.
func Examine(ctx context.Context, cfg Config, r *backend.Report) {
	cfg = cfg.withDefaults()
	e := &examination{b: newBus(cfg), r: r}
	defer func() { _ = e.b.Close() }() // it was only read
	if err := e.connect(ctx); err != nil {
		e.find(checkPubSubReached, err, "Nothing of Pub/Sub could be examined.")
		return
	}
	if e.topic(ctx) && cfg.Subscription != "" {
		e.subscription(ctx)
	}
}

type examination struct {
	b *Bus
	r *backend.Report
}

func (e *examination) connect(ctx context.Context) (err error) {
	if e.b.options, err = e.b.cfg.options(ctx, credentials.DetectDefault); err != nil {
		return err
	}
	e.b.admin, err = pubsub.NewClient(ctx, e.b.cfg.Project, slices.Concat(e.b.options, []option.ClientOption{option.WithGRPCConnectionPool(1)})...)
	return err
}

// find turns an error of Pub/Sub into a finding.
func (e *examination) find(check string, err error, why string) {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		check = checkPubSubRights
	case codes.Unavailable, codes.DeadlineExceeded:
		check = checkPubSubReached
	}
	e.r.Error(check, err, why, "howto/google-cloud.md")
}

// topic examines the topic. It returns false if Pub/Sub does not answer.
func (e *examination) topic(ctx context.Context) (answers bool) {
	err := e.b.checkTopic(ctx)
	switch code := status.Code(err); {
	case err == nil:
		e.r.Done(checkTopic, "")
	case code == codes.PermissionDenied && e.b.cfg.Subscription != "":
		e.r.Skip(checkTopic, "no right to look at it, which an aggregator does not need")
	case code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded):
		e.find(checkPubSubReached, err, "Increments are neither sent nor counted.")
		return false
	default:
		e.find(checkTopic, err, "Publishers cannot send increments, or Pub/Sub drops them.")
	}
	if e.b.cfg.Subscription == "" {
		e.rights(ctx, "topic "+e.b.cfg.topicName(), "pubsub.topics.publish", "roles/pubsub.publisher", func(ctx context.Context, want []string) (*iampb.TestIamPermissionsResponse, error) {
			return e.b.admin.TopicAdminClient.TestIamPermissions(ctx, &iampb.TestIamPermissionsRequest{Resource: e.b.cfg.topicName(), Permissions: want})
		})
	}
	return true
}

func (e *examination) subscription(ctx context.Context) {
	s, err := e.b.lookUp(ctx)
	if err != nil {
		e.find(checkSubscription, err, "Aggregators get no messages.")
		return
	}
	e.r.Done(checkSubscription, "")
	for _, h := range harmful(s) {
		e.r.Find(backend.Finding{
			Check: checkSubscription, What: fmt.Sprintf("Subscription %s: %s.", e.b.cfg.Subscription, h.what),
			Why: "Increments are lost or late.", Do: e.change(h.flags), Page: "howto/google-cloud.md",
		})
	}
	if d := time.Duration(s.AckDeadlineSeconds) * time.Second; d > longestDeadline {
		e.r.Find(backend.Finding{
			Check: checkAckDeadline, What: fmt.Sprintf("Subscription %s has an ack deadline of %s.", e.b.cfg.Subscription, d),
			Why: "Messages of a killed aggregator may stay hidden for as long, and totals miss them.", Do: e.change("--ack-deadline=10"), Page: "howto/google-cloud.md",
		})
	}
	e.givenUp(ctx, s)
	e.rights(ctx, "subscription "+s.Name, "pubsub.subscriptions.consume", "roles/pubsub.subscriber", func(ctx context.Context, want []string) (*iampb.TestIamPermissionsResponse, error) {
		return e.b.admin.SubscriptionAdminClient.TestIamPermissions(ctx, &iampb.TestIamPermissionsRequest{Resource: s.Name, Permissions: want})
	})
}

func (e *examination) change(flags string) string {
	if flags == "" {
		return "This setting cannot be changed. Make another subscription, name it in --bus, and delete this one when it is empty. " + e.b.subscriptionCommand()
	}
	return fmt.Sprintf("gcloud pubsub subscriptions update %s --project=%s %s", e.b.cfg.Subscription, e.b.cfg.Project, flags)
}

// givenUp examines the place for messages that Pub/Sub cannot deliver.
func (e *examination) givenUp(ctx context.Context, s *pubsubpb.Subscription) {
	name, policy := e.b.cfg.DeadLetterTopic, s.DeadLetterPolicy
	f := backend.Finding{Check: checkGivenUp, Page: "howto/google-cloud.md"}
	switch {
	case policy == nil:
		f.What = fmt.Sprintf("Subscription %s has no dead-letter policy.", e.b.cfg.Subscription)
		f.Why = "A message that no aggregator can take comes again for ever, and redeliveries are not counted."
		f.Do = "gcloud pubsub subscriptions update " + e.b.cfg.Subscription + " --project=" + e.b.cfg.Project + " --dead-letter-topic=TOPIC --max-delivery-attempts=100"
	case name == "":
		f.What = "Nobody reads the messages that Pub/Sub gives up and moves to " + policy.DeadLetterTopic + "."
		f.Why = "Their increments are in no total, and Pub/Sub deletes them after some days."
		f.Do = "Add dead_letter=SUBSCRIPTION to --bus, with a subscription of that topic."
	default:
		e.r.Done(checkGivenUp, "")
		other := &Bus{cfg: e.b.cfg, admin: e.b.admin}
		other.cfg.Subscription, other.cfg.AnyTopic = name, true
		kept, err := other.lookUp(ctx)
		switch {
		case err != nil:
			e.find(checkGivenUp, err, "Aggregators cannot take the messages that Pub/Sub gives up.")
			return
		case kept.Topic == policy.DeadLetterTopic:
			return
		}
		f.What = fmt.Sprintf("Subscription %s belongs to %s, and messages that Pub/Sub gives up go to %s.", name, kept.Topic, policy.DeadLetterTopic)
		f.Why, f.Do = "Their increments are in no total.", "Name a subscription of the second topic in dead_letter= of --bus."
	}
	e.r.Find(f)
}

type testRights func(ctx context.Context, want []string) (*iampb.TestIamPermissionsResponse, error)

// rights asks for one permission. Everybody may ask about their own.
func (e *examination) rights(ctx context.Context, what, want, role string, ask testRights) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := ask(ctx, []string{want})
	switch {
	case status.Code(err) == codes.Unimplemented:
		e.r.Skip(checkPubSubRights, "this server does not know permissions, as an emulator")
	case err != nil:
		e.r.Skip(checkPubSubRights, err.Error())
	case slices.Contains(got.Permissions, want):
		e.r.Done(checkPubSubRights, "")
	default:
		e.r.Find(backend.Finding{
			Check: checkPubSubRights, What: fmt.Sprintf("This account lacks %s on %s.", want, what),
			Why: "The role that needs it does not start, or ends.", Do: "Grant " + role + " to the service account of that role.", Page: "howto/google-cloud.md",
		})
	}
}
