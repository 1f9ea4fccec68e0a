package command

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// onTerminal is what a command line writes to a terminal.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer person.Close()
	var number, locked int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Skip(errno)
		}
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(person) // an error is the end of the terminal
		read <- strings.ReplaceAll(string(text), "\r\n", "\n")
	}()
	var errOut bytes.Buffer
	if code := run(t.Context(), host{argv: args, stdout: terminal, stderr: &errOut}); code != 0 {
		t.Errorf("got exit %d and %q", code, errOut.String())
	}
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	return <-read
}

// A chart says how much of the sums has no curve, if that is not 0.
func TestSeriesOnATerminal(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{"": "", "0": "", "42": "42 without a curve: counted without a rule\n", "-3": "-3 without a curve: counted without a rule\n"} {
		f := newFakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Countmill-Without-Curve", header)
			io.WriteString(w, twoRows)
		})
		got := onTerminal(t, "series", "a", "--server", f.URL)
		_, after, ok := strings.Cut(got, "2026-11-23T00:15:00Z\n\n")
		if !ok || !strings.HasPrefix(got, "a: 4 in 2 rows of 15m, at most 5 in one\n") || after != want {
			t.Errorf("header %q: got\n%s\nwant a chart, and below it %q", header, got, want)
		}
	}
}
