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

// The formats. CLF is an access log in the common or combined format of web servers.
const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson"
	CLF    Format = "clf"
)

// formats have the endings by which they are recognised.
var formats = []struct {
	format  Format
	endings []string
}{
	{CSV, []string{".csv", ".tsv"}},
	{NDJSON, []string{".ndjson", ".jsonl"}},
	{CLF, nil},
}

// FormatOf returns the format called name, or if name is empty the format of the file's ending, before .gz.
func FormatOf(name, file string) (Format, error) {
	ending := path.Ext(strings.TrimSuffix(strings.ToLower(filepath.ToSlash(file)), ".gz"))
	for _, f := range formats {
		if name == string(f.format) || name == "" && slices.Contains(f.endings, ending) {
			return f.format, nil
		}
	}
	if name != "" {
		return "", fmt.Errorf("must be csv, ndjson or clf, got %q", name)
	}
	return "", fmt.Errorf("choose csv, ndjson or clf: the name %q does not end in .csv, .tsv, .ndjson or .jsonl, nor in one of these and .gz", file)
}
