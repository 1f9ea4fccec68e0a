package adopt

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/internal/transfer/appengine"
)

// The id of a row is of the source, the counter and the snapshots before it, not of the total.
func TestIDs(t *testing.T) {
	t.Parallel()
	a := &Adoption{Source: appengine.Config{Project: "p", Namespace: "n"}}
	if first, again := a.id("c", ""), a.id("c", ""); first != again {
		t.Error("one counter has two ids")
	}
	seen := map[string]string{a.id("c", ""): "the first"}
	for name, id := range map[string]string{
		"another counter":   a.id("d", ""),
		"a later snapshot":  a.id("c", "x"),
		"another namespace": (&Adoption{Source: appengine.Config{Project: "p", Namespace: "m"}}).id("c", ""),
		"shifted fields":    (&Adoption{Source: appengine.Config{Project: "pn"}}).id("c", ""),
	} {
		if other, ok := seen[id]; ok {
			t.Errorf("%s has the id of %s", name, other)
		}
		seen[id] = name
	}
}

func TestTaken(t *testing.T) {
	t.Parallel()
	a := &Adoption{Snapshot: filepath.Join(t.TempDir(), "s.ndjson"), Log: io.Discard}
	text := `{"counter":"b","delta":2,"id":"1"}` + "\n" + `{"counter":"a","delta":-3,"id":"2"}` + "\n"
	if err := os.WriteFile(a.Snapshot, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := a.Taken()
	want := []*Counter{{Counter: "a", Layouts: []string{"snapshot"}, Total: -3, Delta: -3}, {Counter: "b", Layouts: []string{"snapshot"}, Total: 2, Delta: 2}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("counters of the snapshot (-want +got), %v:\n%s", err, diff)
	}
	a.Since = []string{a.Snapshot}
	if _, err := a.Take(t.Context(), true); err == nil || !strings.Contains(err.Error(), "was not imported to its end") {
		t.Errorf("since a snapshot that was not imported: got %v", err)
	}
}
