package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/bustest"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/emulator"
)

// TestMain is also the program, for TestKills.
func TestMain(m *testing.M) {
	if os.Getenv("SQLBUS_RUN") != "" {
		main()
	}
	os.Exit(emulator.Around(m).Run())
}

// database makes a database of the test's own.
func database(t *testing.T) string {
	t.Helper()
	server := emulator.Postgres(t)
	name := strings.ReplaceAll(emulator.Project(), "-", "_")
	conn, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(server, "/postgres?")
	return before + "/" + name
}

func TestBus(t *testing.T) {
	t.Setenv("PGSSLMODE", "disable")
	bustest.Run(t, func(t *testing.T) bustest.Bus {
		b, err := open(t.Context(), database(t), true)
		if err != nil {
			t.Fatal(err)
		}
		return bustest.Bus{Publisher: b, Subscriber: b, Topic: topic, Redelivers: true, AtOnce: atOnce}
	})
}

// start runs a role, and returns its URL and its end by SIGKILL.
func start(t *testing.T, args ...string) (url string, kill func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, append(args, "--listen", "127.0.0.1:0")...)
	cmd.Env = append(os.Environ(), "SQLBUS_RUN=1", "PGSSLMODE=disable")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	guard, err := child.GuardProcess(cmd.Process.Pid)
	if err != nil {
		t.Error(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			guard.End()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, url, ok := strings.Cut(lines.Text(), "listens on "); ok {
			return url, kill
		}
	}
	t.Fatalf("%s printed no address", args[0])
	return "", nil
}

// Roles that share nothing but a database count exactly, while aggregators are killed.
func TestKills(t *testing.T) {
	dsn := database(t)
	bus, store := "sql"+strings.TrimPrefix(dsn, "postgres"), dsn
	_, kill := start(t, "aggregator", "--bus", bus, "--store", store, "--create")
	publisher, _ := start(t, "publisher", "--bus", bus)
	reader, _ := start(t, "reader", "--store", store)
	c, err := client.New(publisher)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.New(reader)
	if err != nil {
		t.Fatal(err)
	}
	const rounds, each = 4, 100
	for range rounds {
		var sending sync.WaitGroup
		for i := range each {
			sending.Go(func() {
				if err := c.Increment(t.Context(), countmill.Increment{Counter: fmt.Sprintf("c%d", i%10), Delta: 1}); err != nil {
					t.Error(err)
				}
			})
		}
		sending.Wait()
		kill()
		_, kill = start(t, "aggregator", "--bus", bus, "--store", store)
	}
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := range 10 {
		for {
			total, err := r.Total(t.Context(), fmt.Sprintf("c%d", i), client.WithMaxStaleness(0))
			if err == nil && total.Total == rounds*each/10 {
				break
			}
			if err == nil && total.Total > rounds*each/10 {
				t.Fatalf("%+v: something counted twice", total)
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("got %+v, %v, want %d", total, err, rounds*each/10)
			}
		}
	}
}
