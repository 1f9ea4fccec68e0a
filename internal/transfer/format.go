package transfer

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A Format is the format of a file.
type Format string

// The formats.
const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson"
)

// formats have the endings by which they are recognised.
var formats = []struct {
	format  Format
	endings []string
}{
	{CSV, []string{".csv", ".tsv"}},
	{NDJSON, []string{".ndjson", ".jsonl"}},
}

// FormatOf returns the format called name, or if name is empty the format of the file's ending.
func FormatOf(name, file string) (Format, error) {
	ending := path.Ext(strings.ToLower(filepath.ToSlash(file)))
	for _, f := range formats {
		if name == string(f.format) || name == "" && slices.Contains(f.endings, ending) {
			return f.format, nil
		}
	}
	if name != "" {
		return "", fmt.Errorf("must be csv or ndjson, got %q", name)
	}
	return "", fmt.Errorf("choose csv or ndjson: the name %q does not end in .csv, .tsv, .ndjson or .jsonl", file)
}
