package archtest

import (
	"io/fs"
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
	noAnchor = regexp.MustCompile(`[^\pL\pN _-]`)
)

// Links to files of the repository, and to sections of documents, lead somewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil || len(documents) < 4 {
		t.Fatalf("got documents %q, %v", documents, err)
	}
	below := 0
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			documents = append(documents, path)
			below++
		}
		return err
	})
	if err != nil || below < 10 {
		t.Fatalf("got %d documents below docs, %v", below, err)
	}
	seen, sections := 0, map[string]map[string]bool{}
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
			if sections[target] == nil {
				sections[target] = anchors(string(held))
			}
			if m[2] != "" && !sections[target][m[2]] {
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
		name := noAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		all["#"+strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// Each document that a comment, a message or the Makefile names exists.
func TestPointers(t *testing.T) {
	t.Parallel()
	pointers := regexp.MustCompile(`\bdocs/[a-z0-9/_-]+\.(md|svg)\b`)
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" && filepath.Ext(path) != ".md" && d.Name() != "Makefile":
			return nil
		}
		text, err := os.ReadFile(path)
		for _, document := range pointers.FindAllString(string(text), -1) {
			seen++
			if _, err := os.Stat(filepath.Join(root, document)); err != nil {
				t.Errorf("%s names %s: %v", path, document, err)
			}
		}
		return err
	})
	if err != nil || seen < 20 {
		t.Fatalf("found %d paths of documents, %v", seen, err)
	}
}
