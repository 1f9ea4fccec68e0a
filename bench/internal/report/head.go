// Package report formats the results of measurements: how they came, and numbers in readable form.
package report

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Head writes when, how and on which machine something is measured, before the results.
func Head(w io.Writer, quick bool) error {
	if quick {
		if _, err := fmt.Fprintf(w, "A QUICK RUN: it shows that everything works. Its figures are useless.\n\n"); err != nil {
			return err
		}
	}
	system, _ := exec.Command("uname", "-srm").Output()
	revision, _ := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*").Output()
	_, err := fmt.Fprintf(w, "%s\n%s, %d CPUs\n%s, revision %s\n%s\n", time.Now().UTC().Format(time.RFC3339), strings.TrimSpace(string(system)), runtime.NumCPU(),
		runtime.Version(), strings.TrimSpace(string(revision)), strings.Join(os.Args, " "))
	return err
}
