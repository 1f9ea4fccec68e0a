package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const metricsReference = "docs/reference/metrics.md"

// The page of metrics has a row for each metric that the code makes, with its help, and no others. Counters end in _total.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	coded, shown := map[string]bool{}, map[string]bool{}
	for _, s := range product(t) {
		for _, m := range regexp.MustCompile(`"(countmill_[a-z_]+)",\s*(?:Help:\s*)?"((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(s.text, -1) {
			help, err := strconv.Unquote(`"` + m[2] + `"`)
			if err != nil {
				t.Errorf("%s: the help of %s: %v", s.name, m[1], err)
			}
			coded[m[1]+" | "+help] = true
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(countmill_[a-z_]+)` \\| (counter|gauge|histogram)[^|]* \\| (.*) \\|$").FindAllStringSubmatch(read(t, metricsReference), -1) {
		shown[row[1]+" | "+row[3]] = true
		if (row[2] == "counter") != strings.HasSuffix(row[1], "_total") {
			t.Errorf("%s is a %s", row[1], row[2])
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(coded)), slices.Sorted(maps.Keys(shown))); diff != "" || len(coded) < 50 {
		t.Errorf("%s does not have the %d metrics of the code with their help (-code +page):\n%s", metricsReference, len(coded), diff)
	}
}

// product are the files of the product.
func product(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(sources(t), func(s source) bool {
		return s.isTest() || strings.HasPrefix(s.name, "bench/") || strings.HasPrefix(s.name, "examples/") || strings.HasPrefix(s.name, "internal/testing/")
	})
}

// text is the value of a string literal.
func text(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(l.Value)
	return value, err == nil
}
