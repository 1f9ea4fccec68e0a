package transfer

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// A Format is the format of a file.
type Format string

// The formats.
const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson"
)

// FormatOf returns the format called name, or if name is empty the format of the file's ending.
func FormatOf(name, file string) (Format, error) {
	switch format := Format(name); {
	case format == CSV || format == NDJSON:
		return format, nil
	case name != "":
		return "", fmt.Errorf("must be csv or ndjson, got %q", name)
	}
	switch strings.ToLower(path.Ext(filepath.ToSlash(file))) {
	case ".csv":
		return CSV, nil
	case ".ndjson", ".jsonl":
		return NDJSON, nil
	}
	return "", fmt.Errorf("choose csv or ndjson: the name %q does not end in .csv, .ndjson or .jsonl", file)
}
