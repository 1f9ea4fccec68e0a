package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	links    = regexp.MustCompile(`\]\(([^)#: ]*)(#[^) ]*)?\)`)
	headings = regexp.MustCompile("(?m)^#+ (.*)$")
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// Links to files of the repository, and to sections of documents, lead somewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) < 4 {
			t.Fatalf("got documents %q, %v", found, err)
		}
		documents = append(documents, found...)
	}
	seen := 0
	for _, doc := range documents {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range links.FindAllStringSubmatch(string(text), -1) {
			target := doc
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(doc), m[1])
			}
			held, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				err = nil
			}
			if err != nil {
				t.Errorf("%s links to %s: %v", doc, m[0], err)
			}
			if m[2] != "" && !anchors(string(held))[m[2]] {
				t.Errorf("%s links to %s: there is no such section", doc, m[0])
			}
			seen++
		}
	}
	if seen < 30 {
		t.Errorf("found %d links only", seen)
	}
}

// anchors returns the names of a document's sections in links, as GitHub makes them.
func anchors(markdown string) map[string]bool {
	all := map[string]bool{}
	for _, m := range headings.FindAllStringSubmatch(fenced.ReplaceAllString(markdown, ""), -1) {
		name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all["#"+strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}
