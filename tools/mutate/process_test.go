//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// No process of a command outlives it, whether it ends or is ended.
func TestCommandsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"ended by its context": `sleep 1000 >"$1" & sleep 1000`,
		"ended by itself":      `sleep 1000 >"$1" 2>/dev/null </dev/null & exec >/dev/null 2>&1; until [ -e "$1.read" ]; do sleep 0.01; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fifo := filepath.Join(t.TempDir(), "held")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			byContext := strings.Contains(name, "context")
			over := make(chan error, 1)
			go func() { // a reader sees the end when no writer is left
				f, err := os.Open(fifo)
				if err == nil {
					err = os.WriteFile(fifo+".read", nil, 0o600)
				}
				if byContext { // now that the child has the file
					cancel()
				}
				if err == nil {
					_, err = io.Copy(io.Discard, f)
				}
				over <- err
			}()
			_, err := runBounded(ctx, ".", 4096, "sh", "-c", script, "sh", fifo)
			if (err != nil) != byContext {
				t.Errorf("got error %v, want one: %t", err, byContext)
			}
			select {
			case err := <-over:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("a child of the command is still there")
			}
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := runBounded(ctx, ".", 600, "go", "run", "./testdata/hog")
	if err == nil || ctx.Err() != nil || !strings.Contains(out, "out of memory") {
		t.Errorf("got %v and %q, want the runtime out of memory", err, out)
	}
}
