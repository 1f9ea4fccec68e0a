package gcppubsub

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc/codes"

	"github.com/countmill/countmill/internal/testing/longtest"
)

func wantMention(t *testing.T, err error, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that mentions %q", err, want)
		}
	}
}

func TestNoCredentials(t *testing.T) {
	t.Setenv("PUBSUB_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", t.TempDir()+"/none.json")
	_, err := Open(t.Context(), Config{Project: "p", Topic: "increments"})
	wantMention(t, err, "application default credentials", "GOOGLE_APPLICATION_CREDENTIALS", "PUBSUB_EMULATOR_HOST")
}

func TestSlowSearchForCredentials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, err := findCredentials(t.Context(), func(*credentials.DetectOptions) (*auth.Credentials, error) {
			time.Sleep(time.Minute)
			return nil, errors.New("too late")
		})
		wantMention(t, err, "application default credentials", "PUBSUB_EMULATOR_HOST")
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("took %s, want 5s at most", took)
		}
		time.Sleep(time.Hour)
	})
}

// openHere opens a bus that makes nothing, as in production.
func openHere(t *testing.T, server *pstest.Server, change func(*Config)) error {
	t.Helper()
	cfg := Config{Project: "p", Topic: "increments", Subscription: "aggregators", EmulatorHost: server.Addr}.withDefaults()
	cfg.Create = false
	change(&cfg)
	bus, err := openChecked(t.Context(), cfg)
	if err == nil {
		t.Cleanup(func() { _ = bus.Close() })
	}
	return err
}

// TestMissing: Open's errors name missing things and the command that makes them.
func TestMissing(t *testing.T) {
	t.Parallel()
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	asIs := func(*Config) {}
	receiveOnly := func(c *Config) { c.ReceiveOnly = true }
	publishOnly := func(c *Config) { c.Subscription = "" }

	wantMention(t, openHere(t, server, asIs), "gcloud pubsub topics create increments --project=p")
	ctx := context.Background()
	if _, err := server.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/p/topics/increments"}); err != nil {
		t.Fatal(err)
	}
	const command = "gcloud pubsub subscriptions create aggregators --topic=increments --project=p"
	wantMention(t, openHere(t, server, asIs), "has no subscription", command)
	wantMention(t, openHere(t, server, publishOnly), "has no subscription")
	wantMention(t, openHere(t, server, receiveOnly), command, "--expiration-period=never")
	s := subscriptionOf("projects/p/subscriptions/aggregators", "projects/p/topics/increments")
	if _, err := server.GServer.CreateSubscription(ctx, s); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Config){asIs, receiveOnly, publishOnly} {
		if err := openHere(t, server, change); err != nil {
			t.Error(err)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "waits for a time-out of 10 s")
	_, err := Open(t.Context(), Config{Project: "p", Topic: "increments", EmulatorHost: "127.0.0.1:1"})
	wantMention(t, err, "is the emulator at 127.0.0.1:1 running?")
}

func TestHarmfulSettings(t *testing.T) {
	t.Parallel()
	good := subscriptionOf("s", "t")
	if harm := harmful(good); len(harm) > 0 {
		t.Errorf("what Create makes: got %q", harm)
	}
	if retry := good.RetryPolicy; retry.GetMinimumBackoff().AsDuration() != time.Second || retry.GetMaximumBackoff().AsDuration() != 10*time.Second {
		t.Errorf("what Create makes: got retry policy %v, want 1s to 10s", retry)
	}
	bad := subscriptionOf("s", "t")
	bad.Filter, bad.EnableMessageOrdering, bad.EnableExactlyOnceDelivery = "x", true, true
	bad.ExpirationPolicy.Ttl = bad.MessageRetentionDuration
	bad.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{MaxDeliveryAttempts: 5}
	if harm := harmful(bad); len(harm) != 5 {
		t.Errorf("got %q, want 5 lines", harm)
	}
}

// TestFlappingStream: a stream that is closed and opened again is not an outage. A stream that is refused
// again and again is one.
func TestFlappingStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h health
		h.open()
		time.Sleep(time.Hour)
		h.failed(errors.New("closed"))
		if err := h.err(); err != nil {
			t.Errorf("at once after an hour of work: %v", err)
		}
		h.open()
		time.Sleep(time.Hour)
		if err := h.err(); err != nil {
			t.Errorf("opened again: %v", err)
		}
		for range 6 {
			h.failed(errors.New("refused"))
			time.Sleep(time.Second)
			h.open()
			time.Sleep(10 * time.Millisecond)
		}
		wantMention(t, h.err(), "refused")
		h.heard()
		if err := h.err(); err != nil {
			t.Errorf("heard something: %v", err)
		}
	})
}

// With Create, a process that only receives needs no rights on topics: the roles of
// docs/howto/google-cloud.md give it none. One that publishes needs them.
func TestCreateWithoutRightsOnTopics(t *testing.T) {
	t.Parallel()
	server := pstest.NewServer(pstest.WithErrorInjection("GetTopic", codes.PermissionDenied, "no right"))
	t.Cleanup(func() { _ = server.Close() })
	for name, subscription := range map[string]string{"increments": "aggregators", "dead": "dead"} {
		topic := &pubsubpb.Topic{Name: "projects/p/topics/" + name}
		if _, err := server.GServer.CreateTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		s := subscriptionOf("projects/p/subscriptions/"+subscription, topic.Name)
		if _, err := server.GServer.CreateSubscription(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, receives := range []bool{true, false} {
		err := openHere(t, server, func(c *Config) { c.Create, c.ReceiveOnly, c.DeadLetterTopic = true, receives, "dead" })
		if receives && err != nil {
			t.Errorf("a process that only receives: %v", err)
		}
		if !receives {
			wantMention(t, err, "no right")
		}
	}
}
