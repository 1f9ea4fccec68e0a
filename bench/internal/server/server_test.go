package server

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A server that ignores signals, and its children, are gone after Stop.
func TestStopEndsTheGroup(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for 10 s")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "alive")
	p, err := Start(t.Context(), Spec{
		Name: "sh", Path: "/bin/sh", Dir: dir,
		Args:  []string{"-c", "trap '' TERM; (while :; do date +%s%N >" + file + "; sleep 0.05; done) & wait; while :; do sleep 1; done"},
		Ready: func(context.Context) error { return exec.Command("test", "-s", file).Run() },
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
	read := func() string {
		out, err := exec.Command("cat", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := read()
	<-time.After(300 * time.Millisecond)
	if after := read(); before != after {
		t.Errorf("something of the server goes on: %s, then %s", before, after)
	}
}

func TestOutputEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	// sleep holds the pipe of the shell that started it. Output must not wait for it.
	_, err := Output(ctx, exec.Command("sh", "-c", "sleep 60; true"))
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 20*time.Second {
		t.Errorf("got %v after %s, want %v soon", err, took, context.DeadlineExceeded)
	}
}
