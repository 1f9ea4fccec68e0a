package counters

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill and kills it")
	}
	var out strings.Builder
	if err := Run(context.Background(), []string{"-quick"}, &out, io.Discard); err != nil {
		t.Fatalf("%v after %s", err, out.String())
	}
	for _, row := range []string{"on disk", "first total", "warm", "leaderboard"} {
		if strings.Count(out.String(), row) != 2 {
			t.Errorf("not two rows of %q in %s", row, out.String())
		}
	}
}
