package billion

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
)

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill and kills it")
	}
	var out strings.Builder
	if err := Run(context.Background(), []string{"-quick"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?s)exact: 5000000 increments.*killed [1-9]\d* times.*up took [1-9]\d* MiB.* has [1-9]\d* MiB on disk`).MatchString(out.String()) {
		t.Errorf("no kills, memory or disk in %s", out.String())
	}
}
