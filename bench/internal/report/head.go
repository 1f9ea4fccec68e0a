package report

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// A Head says when, how and on which machine something was measured.
type Head struct {
	When     time.Time
	Command  string
	Machine  string
	Go       string
	Revision string
	Quick    bool
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
