package emulator_test

import (
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(m)) }

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(testing.TB) string{"firestore": emulator.Firestore, "datastore": emulator.Datastore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := serve(t)
			if again := serve(t); again != host {
				t.Errorf("asked twice: got %s, then %s", host, again)
			}
			get(t, host)
		})
	}
}

func get(t *testing.T, host string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + host + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

const childEnv = "COUNTMILL_EMULATOR_CHILD"

// TestChild is the process that TestEndsWithItsProcess kills.
func TestChild(t *testing.T) {
	how := os.Getenv(childEnv)
	if how == "" {
		t.Skip("not the other process")
	}
	host := emulator.Firestore(t)
	_, port, _ := strings.Cut(host, ":")
	if err := os.WriteFile(os.Getenv("COUNTMILL_EMULATOR_CHILD_FILE"), []byte(port), 0o600); err != nil {
		t.Fatal(err)
	}
	if how == "panic" {
		panic("on purpose")
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	<-t.Context().Done() // the signal may take its time
}

// An emulator must not survive the tests that it was started for.
func TestEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	emulator.Firestore(t) // skips where there is none
	if os.Getenv("COUNTMILL_TEST_FIRESTORE_EMULATOR") != "" && !strings.HasSuffix(os.Getenv("COUNTMILL_TEST_FIRESTORE_EMULATOR"), ".jar") {
		t.Skip("the emulator was started by somebody else")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"panic", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			file := t.TempDir() + "/port"
			cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestChild$", "-test.timeout", "5m")
			cmd.Env = append(os.Environ(), childEnv+"="+how, "COUNTMILL_EMULATOR_CHILD_FILE="+file)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the other process did not end by %s:\n%s", how, out)
			}
			port, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if _, err := strconv.Atoi(string(port)); err != nil {
				t.Fatal(err)
			}
			gone(t, "127.0.0.1:"+string(port))
		})
	}
}

func gone(t *testing.T, host string) {
	t.Helper()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		resp, err := client.Get("http://" + host + "/")
		if err != nil {
			return
		}
		_ = resp.Body.Close()
		if time.Now().After(deadline) {
			t.Fatalf("the emulator on %s still answers", host)
		}
	}
}
