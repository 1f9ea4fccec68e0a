package gcppubsub

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// TestProductionCommands runs the documented commands for a real project against the emulator. They
// make the same as Create, with no harmful settings.
func TestProductionCommands(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "runs gcloud five times")
	host := emulator.PubSub(t)
	_, err := exec.LookPath("gcloud")
	if err != nil {
		t.Skip("no gcloud on this machine")
	}
	doc, err := os.ReadFile("../../docs/howto/google-cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, begun := strings.Cut(string(doc), "PROJECT=my-project\n")
	block, _, ended := strings.Cut(block, "```")
	if !begun || !ended {
		t.Fatal("docs/howto/google-cloud.md has no commands for a project")
	}
	project := emulator.Project()
	script := "PROJECT=" + project + "\n" + block
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	cmd.Env = append(os.Environ(), "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB=http://"+host+"/", "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true",
		"CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true", "CLOUDSDK_CORE_DISABLE_PROMPTS=true", "CLOUDSDK_CONFIG="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made := lookUpOn(t, Config{Project: project, Topic: "countmill", Subscription: "countmill", EmulatorHost: host})
	if harm := harmful(made); len(harm) > 0 {
		t.Errorf("got %q", harm)
	}
	dead := lookUpOn(t, Config{Project: project, Topic: "countmill-dead", Subscription: "countmill-dead", EmulatorHost: host})
	if harm := harmful(dead); len(harm) > 0 {
		t.Errorf("dead letters: got %q", harm)
	}
	other := Config{Project: emulator.Project(), Topic: "countmill", Subscription: "countmill", DeadLetterTopic: "countmill-dead", EmulatorHost: host, Create: true}
	want := lookUpOn(t, other)
	want.Name, want.Topic = made.Name, made.Topic
	want.RetryPolicy = &pubsubpb.RetryPolicy{ // which Create leaves out on an emulator
		MinimumBackoff: durationpb.New(minRetry), MaximumBackoff: durationpb.New(maxRetry),
	}
	want.DeadLetterPolicy.DeadLetterTopic = made.DeadLetterPolicy.GetDeadLetterTopic()
	if diff := cmp.Diff(want, made, protocmp.Transform()); diff != "" {
		t.Errorf("made by Create (-) and by the commands (+):\n%s", diff)
	}
}

// lookUpOn is the subscription as Open finds or, with Create, makes it.
func lookUpOn(t *testing.T, cfg Config) *pubsubpb.Subscription {
	t.Helper()
	create := cfg.Create
	cfg = cfg.withDefaults()
	cfg.Create = create // always on against an emulator
	bus, err := openChecked(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bus.Close() }()
	s, err := bus.lookUp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
