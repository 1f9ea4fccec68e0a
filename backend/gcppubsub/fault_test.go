package gcppubsub_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/ThreeDotsLabs/watermill/message"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/faultproxy"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// busy is extra time for a machine that is slow, or busy with other tests, compared with an idle one.
const busy = 2 * time.Minute

// until polls, because the awaited event happens at the other end of a connection. within is enough for
// an idle machine.
func until(t *testing.T, within time.Duration, what string, done func() bool) {
	t.Helper()
	within += busy
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, within)
		}
	}
}

func mentions(t *testing.T, err error, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !contains(err, want) {
			t.Errorf("got error %v, want one that mentions %q", err, want)
		}
	}
}

func contains(err error, want string) bool { return err != nil && strings.Contains(err.Error(), want) }

// TestReceivingEnds: when Pub/Sub refuses for good, the channel closes, Ready returns the reason, and
// the next Subscribe works again once Pub/Sub allows it.
func TestReceivingEnds(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	bus := open(t, f.host)
	f.refuse(status.Error(codes.PermissionDenied, "taken away"))
	for range 2 {
		messages := subscribe(t, bus)
		until(t, 10*time.Second, "channel closed", func() bool { return closed(messages) })
		mentions(t, bus.Ready(), "taken away", "roles/pubsub.subscriber")
	}
	subscribe(t, bus) // it checks the subscription before the refusal has come
	mentions(t, bus.Ready(), "taken away")
	until(t, 10*time.Second, "ended", func() bool { return bus.Stats().StreamErrors >= 3 })
	f.refuse(nil)
	var messages <-chan *message.Message
	until(t, 10*time.Second, "subscribed again", func() bool {
		var err error
		messages, err = bus.Subscribe(t.Context(), "increments")
		return err == nil
	})
	publish(t, bus, "x", nil)
	receive(t, messages, 10*time.Second).Ack()
	if err := bus.Ready(); err != nil {
		t.Errorf("after a message: %v", err)
	}
}

func closed(messages <-chan *message.Message) bool {
	select {
	case _, ok := <-messages:
		return !ok
	default:
		return false
	}
}

// TestBrokenStream: the client library retries a broken stream without a word and without a limit.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "waits until a broken stream is given up")
	f := newFake(t)
	bus := open(t, f.host)
	f.refuse(status.Error(codes.Unavailable, "away"))
	messages := subscribe(t, bus)
	until(t, 20*time.Second, "not ready", func() bool { return bus.Ready() != nil })
	mentions(t, bus.Ready(), "away", "nothing is received since")
	if closed(messages) {
		t.Error("the channel was closed, although the stream will be retried")
	}
	f.refuse(nil)
	until(t, 40*time.Second, "ready", func() bool { return bus.Ready() == nil })
	publish(t, bus, "x", nil)
	receive(t, messages, 10*time.Second).Ack()
}

// TestHalfOpen has connections whose other end is gone without notice: the bus replaces all of them.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "takes as long as a connection may be silent, a minute and more")
	f := newFake(t)
	way := faultproxy.Start(t, f.host)
	bus := open(t, way.Host())
	messages := subscribe(t, bus)
	publish(t, bus, "x", nil)
	receive(t, messages, 10*time.Second).Ack()
	way.Orphan()
	until(t, 20*time.Second, "not ready", func() bool { return bus.Ready() != nil })
	mentions(t, bus.Ready(), "does not answer")
	began := time.Now()
	until(t, 2*time.Minute, "ready", func() bool { return bus.Ready() == nil })
	t.Logf("ready again after %s", time.Since(began))
	until(t, time.Minute, "published", func() bool {
		return bus.Publish("increments", message.NewMessage("after", []byte("x"))) == nil
	})
	receive(t, messages, time.Minute).Ack()
}

// TestCreate makes the same as the commands of docs/howto/google-cloud.md, but for the retry policy.
func TestCreate(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for range 2 { // the second time everything exists
		open(t, f.host, project("p"), func(c *gcppubsub.Config) { c.DeadLetterTopic = "increments-dead" })
	}
	got, err := f.GServer.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: "projects/p/subscriptions/aggregators"})
	if err != nil {
		t.Fatal(err)
	}
	if got.AckDeadlineSeconds != 10 || got.MessageRetentionDuration.AsDuration() != 7*24*time.Hour || got.EnableMessageOrdering || got.EnableExactlyOnceDelivery {
		t.Errorf("got %v", got)
	}
	if got.ExpirationPolicy == nil || got.ExpirationPolicy.Ttl != nil {
		t.Errorf("got expiration %v, want never", got.ExpirationPolicy)
	}
	if got.RetryPolicy != nil { // an emulator stops redelivering with one
		t.Errorf("got retry policy %v, want none against an emulator", got.RetryPolicy)
	}
	if dead := got.DeadLetterPolicy; dead.GetDeadLetterTopic() != "projects/p/topics/increments-dead" || dead.GetMaxDeliveryAttempts() != 100 {
		t.Errorf("got dead-letter policy %v", dead)
	}
	dead, err := f.GServer.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: "projects/p/subscriptions/increments-dead"})
	if err != nil || dead.Topic != "projects/p/topics/increments-dead" {
		t.Errorf("subscription of the dead letters: got %v, %v", dead, err)
	}
}

// TestDeleted: after a topic or subscription is deleted at run time, errors name the command. When it
// is made again, the bus continues without a restart.
func TestDeleted(t *testing.T) {
	t.Parallel()
	host := emulator.PubSub(t)
	id := emulator.Project()
	bus := open(t, host, project(id))
	messages := subscribe(t, bus)
	remove(t, host, id)
	until(t, 30*time.Second, "channel closed", func() bool { return closed(messages) })
	mentions(t, bus.Ready(), "gcloud pubsub subscriptions create aggregators")
	_, err := bus.Subscribe(t.Context(), "increments")
	mentions(t, err, "gcloud pubsub subscriptions create aggregators", "--project="+id)
	err = bus.Publish("increments", message.NewMessage("x", nil))
	mentions(t, err, "gcloud pubsub topics create increments --project="+id)
	if errors.Is(err, countmill.ErrClosed) {
		t.Errorf("got %v: the message would not be sent again", err)
	}
	open(t, host, project(id)) // makes them
	messages = subscribe(t, bus)
	publish(t, bus, "x", nil)
	receive(t, messages, 20*time.Second).Ack()
}

// TestUnusable subscriptions are refused.
func TestUnusable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*pubsubpb.Subscription)
		want   string
	}{
		"other topic": {func(s *pubsubpb.Subscription) { s.Topic = "projects/p/topics/other" }, "belongs to projects/p/topics/other"},
		"push":        {func(s *pubsubpb.Subscription) { s.PushConfig = &pubsubpb.PushConfig{PushEndpoint: "http://localhost/"} }, "name a pull subscription"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			for _, topic := range []string{"increments", "other"} {
				if _, err := f.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/p/topics/" + topic}); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"others", "aggregators"} {
				s := &pubsubpb.Subscription{
					Name: "projects/p/subscriptions/" + name, Topic: "projects/p/topics/increments",
					AckDeadlineSeconds: 10, MessageRetentionDuration: durationpb.New(time.Hour),
				}
				if name == "aggregators" {
					test.change(s)
				}
				if _, err := f.GServer.CreateSubscription(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			bus := open(t, f.host, project("p"))
			_, err := bus.Subscribe(t.Context(), "increments")
			mentions(t, err, test.want)
			mentions(t, bus.Ready(), test.want)
		})
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := gcppubsub.Open(t.Context(), gcppubsub.Config{
		Project: "a/b", Topic: "goog-x", Subscription: "!", DeadLetterTopic: "x", EmulatorHost: "127.0.0.1:1",
		MaxOutstanding: -1, PublishTimeout: -1,
	})
	mentions(t, err, "Project", "Topic must", "Subscription", "DeadLetterTopic", "MaxOutstanding", "PublishTimeout")
}

func TestOtherTopic(t *testing.T) {
	t.Parallel()
	bus := open(t, newFake(t).host)
	mentions(t, bus.Publish("other", message.NewMessage("x", nil)), `"increments"`, `"other"`)
	_, err := bus.Subscribe(t.Context(), "other")
	mentions(t, err, `"increments"`, `"other"`)
}

// remove deletes topic and subscription.
func remove(t *testing.T, host, id string) {
	t.Helper()
	client, err := pubsub.NewClient(t.Context(), id, option.WithEndpoint(host), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	err = errors.Join(
		client.SubscriptionAdminClient.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: "projects/" + id + "/subscriptions/aggregators"}),
		client.TopicAdminClient.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: "projects/" + id + "/topics/increments"}))
	if err != nil {
		t.Fatal(err)
	}
}
