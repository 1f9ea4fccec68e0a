package transfer

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// A Format is how rows stand in a file.
type Format string

// The formats.
const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson"
)

// FormatOf returns the format that name says, or else the one that the file's name ends
// in.
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
	return "", fmt.Errorf("say csv or ndjson: the name %q does not end in .csv, .ndjson or .jsonl", file)
}
