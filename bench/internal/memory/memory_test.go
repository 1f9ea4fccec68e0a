package memory

import (
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill, and starts the emulators")
	}
	args, want := []string{"-quick"}, 4
	if _, err := emulator.Jar("platform/cloud-firestore-emulator/*.jar"); errors.Is(err, emulator.ErrMissing) {
		args, want = append(args, "-only", "disk"), 1
	}
	var out strings.Builder
	if err := Run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if got := regexp.MustCompile(`(?m)^\| .* \| \d*[1-9.]+\d* \w+ \|$`).FindAllString(out.String(), -1); len(got) != want {
		t.Errorf("got %q in %s, want %d figures", got, out.String(), want)
	}
}
