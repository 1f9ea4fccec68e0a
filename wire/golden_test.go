package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew: the format has changed")

// The bytes of a batch are frozen: messages wait on a bus, and dead letters in a store, while
// programs are replaced.
func TestGoldenBatch(t *testing.T) {
	t.Parallel()
	const file = "testdata/batch-format2.hex"
	b := everyKind(t)
	if *update {
		if err := os.WriteFile(file, []byte(hexLines(Append(nil, b))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := Append(nil, b); !bytes.Equal(got, want) {
		t.Errorf("Append writes other bytes than %s:\n%s", file, hexLines(got))
	}
	got, err := Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, got, sameBatch); diff != "" {
		t.Errorf("Decode reads another batch from %s (-want +got):\n%s", file, diff)
	}
}

func hexLines(b []byte) string {
	var lines strings.Builder
	for len(b) > 0 {
		n := min(len(b), 40)
		lines.WriteString(hex.EncodeToString(b[:n]) + "\n")
		b = b[n:]
	}
	return lines.String()
}
