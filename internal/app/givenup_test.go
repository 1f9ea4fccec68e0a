package app

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/wire"
)

// giveUp has Pub/Sub give up a batch, with nobody there to take it in.
func giveUp(t *testing.T, project string, payload []byte) {
	t.Helper()
	bus, err := gcppubsub.Open(t.Context(), gcppubsub.Config{
		Project: project, Topic: "increments", Subscription: "aggregators", DeadLetterTopic: "increments-dead",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	messages, err := bus.Subscribe(t.Context(), "increments")
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Publish("increments", message.NewMessage("x", payload)); err != nil {
		t.Fatal(err)
	}
	for tries := 0; tries < 100; tries++ {
		select {
		case m := <-messages:
			m.Nack()
		case <-time.After(patience):
			t.Fatalf("delivered %d times, want 100", tries)
		}
	}
	select {
	case <-messages:
		t.Fatal("delivered once more")
	case <-time.After(2 * time.Second):
	}
}

// A message that Pub/Sub gives up joins the other dead letters, and is replayed like them.
func TestGivenUpMessagesAreTakenIn(t *testing.T) {
	longtest.Only(t, "gives a message back 100 times")
	t.Setenv("PUBSUB_EMULATOR_HOST", emulator.PubSub(t))
	project := emulator.Project()
	part := wire.CutAnonymous(rand.Reader, []wire.Entry{{Counter: "a", Delta: 5}})[0]
	giveUp(t, project, wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: []wire.Part{part}}))
	r := startWith(t, Config{
		Bus: "pubsub://" + project + "/increments?subscription=aggregators&dead_letter=increments-dead",
	})
	await(t, "a dead letter", func() bool { return len(r.deadKeys(t)) == 1 })
	key := r.deadKeys(t)[0]
	status, text := r.call(t, "GET", "/v1/dead-letters/"+key, "")
	for _, want := range []string{`"applied":"unknown"`, "on subscription aggregators of project " + project + " after deliveries: 100", `"id":"` + part.ID.String() + `"`} {
		if status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("got %d %s, want %s in it", status, text, want)
		}
	}
	// It is counted after its letter was written.
	await(t, "countmill_given_up_messages_total is 1", func() bool { return r.metric(t, "countmill_given_up_messages_total") == 1 })
	r.replay(t, fmt.Sprintf(`{"keys":[%q]}`, key), fmt.Sprintf(`{"dead_letters":[{"key":%q,"result":"asked"}]}`, key))
	await(t, "the letter goes", func() bool { return len(r.deadKeys(t)) == 0 })
	r.wantTotal(t, "a", 5)
}
