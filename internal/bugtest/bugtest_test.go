package bugtest

import "testing"

// A patch that fits nowhere, or in two places, is an error and not planted half.
func TestBadPatchesAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]change{
		"nowhere":        {"doc.go", "no such line\n", ""},
		"twice":          {"doc.go", "//\n", ""},
		"part of a line": {"doc.go", "countmill\n", ""},
		"no such file":   {"nobody.go", "package countmill\n", ""},
	} {
		b := Bug{changes: []change{c}}
		if files, err := b.plant(); err == nil {
			t.Errorf("%s: planted: %q", name, files)
		}
	}
	for _, text := range []string{
		"", "# what\n", "file: a.go\n--- old\na\n--- new\nb\n--- end\n", "# what\nfile: a.go\n--- old\na\n--- new\nb\n",
		"# what\n--- old\na\n--- new\n--- end\n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("is taken for a bug: %q", text)
		}
	}
}
