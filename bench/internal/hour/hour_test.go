package hour

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
)

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill")
	}
	var out strings.Builder
	if err := Run(context.Background(), []string{"-quick"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	want := `(?s)\| all \|( [\d.]+k?M? \|)( [\d.]+ / [\d.]+ \|){3} [1-9]\d* \| \d+ \|\n.* [1-9][\d.]* bytes written to the disk for each.*exact: all 1k totals`
	if !regexp.MustCompile(want).MatchString(out.String()) {
		t.Errorf("want %s in %s", want, out.String())
	}
}
