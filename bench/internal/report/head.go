package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// A Head says when, how and on which machine something was measured.
type Head struct {
	When     time.Time `json:"when"`
	Command  string    `json:"command"`
	Machine  string    `json:"machine"`
	Go       string    `json:"go"`
	Revision string    `json:"revision"`
	Quick    bool      `json:"quick"`
}

// NewHead describes this run.
func NewHead(quick bool) Head {
	return Head{
		When: time.Now().UTC().Truncate(time.Second), Command: strings.Join(os.Args, " "),
		Machine: Machine(), Go: runtime.Version(), Revision: Revision(), Quick: quick,
	}
}

// Print writes it before the results.
func (h Head) Print(w io.Writer) error {
	if h.Quick {
		if _, err := fmt.Fprintf(w, "A QUICK RUN: it shows that everything works. Its figures are useless.\n\n"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n%s, revision %s\n%s\n", h.When.Format(time.RFC3339), h.Machine, h.Go, h.Revision, h.Command)
	return err
}

// WriteJSON writes a file for plots.
func WriteJSON(path string, results any) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
