package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// limitVariable is the number of identifiers that TestAgreesOnGoogle counts; 0 for all.
const limitVariable = "COUNTMILL_TEST_IDENTIFIERS"

// Totals are also exact with separate roles, on Google's emulators and memcached. An aggregator is
// killed again and again, and memcached is restarted.
func TestAgreesOnGoogle(t *testing.T) {
	longtest.Only(t, "builds countmill, and kills an aggregator")
	t.Setenv("PUBSUB_EMULATOR_HOST", emulator.PubSub(t))
	t.Setenv("DATASTORE_EMULATOR_HOST", emulator.Firestore(t))
	limit, batch := "50000", "500"
	if text := os.Getenv(limitVariable); text != "" {
		limit, batch = text, "5000"
	}
	project := emulator.Project()
	args := []string{
		"--limit", limit, "--batch", batch, "--kill", "5", "--aggregators", "2",
		"--binary", build(t), "--memcached", emulator.MemcachedPath(t), "--data", filepath.Join(t.TempDir(), "data"),
		"--bus", "pubsub://" + project + "/increments?subscription=aggregators", "--store", "datastore://" + project,
	}
	var out strings.Builder
	err := run(t.Context(), args, &out, t.Output())
	t.Logf("report:\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kills                       5\n", "cache restarts              1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no row %q", want)
		}
	}
}
