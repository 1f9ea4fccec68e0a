package sim

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestDocumentedFaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/evidence/tests.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("which of %d faults", faultCount); !strings.Contains(string(text), want) {
		t.Errorf("docs/evidence/tests.md does not say %q", want)
	}
}
