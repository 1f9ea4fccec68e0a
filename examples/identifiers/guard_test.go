package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

const guardedVariable = "IDENTIFIERS_TEST_GUARDED"

// TestMainOfAGuarded is no test: it is the process that TestGuard kills.
func TestMainOfAGuarded(t *testing.T) {
	if os.Getenv(guardedVariable) == "" {
		t.Skip("runs in a process that TestGuard starts")
	}
	sleep := exec.Command("sleep", "60")
	sleep.Stdout = os.Stdout
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := newGuard(sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}
	fmt.Println("guarded")
	time.Sleep(time.Minute)
}

// What the program started does not outlive it, not even where it is killed.
func TestGuard(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMainOfAGuarded$")
	cmd.Env = append(os.Environ(), guardedVariable+"=1")
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = w, t.Output()
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("guarded\n"))
	_, err = io.ReadFull(out, line)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || string(line) != "guarded\n" {
		t.Fatalf("the process said %q, error %v", line, err)
	}
	// The pipe ends when both it and what it started have.
	if err := out.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Errorf("what it started still runs 20s after it was killed: %v", err)
	}
}
