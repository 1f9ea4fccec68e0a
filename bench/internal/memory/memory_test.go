package memory

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/countmill/countmill/bench/internal/server"
)

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill, and starts the emulators")
	}
	file := filepath.Join(t.TempDir(), "memory.json")
	args, want := []string{"-quick", "-json", file}, 6
	if _, err := server.Jar("platform/cloud-firestore-emulator/*.jar"); errors.Is(err, server.ErrMissing) {
		args, want = append(args, "-only", "disk"), 2
	}
	if err := Run(t.Context(), args, t.Output(), io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	var got struct{ Results []result }
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil || len(got.Results) != want {
		t.Fatalf("got %s, error %v, want %d figures", text, err, want)
	}
	for _, r := range got.Results {
		if r.Value <= 0 {
			t.Errorf("%s: got %g %s", r.What, r.Value, r.Unit)
		}
	}
}
