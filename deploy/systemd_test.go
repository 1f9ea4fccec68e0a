package deploy_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/app"
)

const (
	unitFile = "systemd/countmill.service"
	// exposure is the most that `systemd-analyze security` of any version may give the unit, times ten. Each
	// version weighs its own list of settings.
	exposure = 20
)

// unit returns the unit, and the value of a line of it.
func unit(t *testing.T) (text string, value func(name string) string) {
	t.Helper()
	b, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), func(name string) string {
		m := regexp.MustCompile("(?m)^" + name + "=(.*)$").FindStringSubmatch(string(b))
		if m == nil {
			t.Fatalf("%s has no line %s=", unitFile, name)
		}
		return m[1]
	}
}

// The binary accepts the command of the unit, which leaves it the time that it needs.
func TestUnit(t *testing.T) {
	t.Parallel()
	_, value := unit(t)
	words := strings.Fields(value("ExecStart"))
	if len(words) < 3 || words[1] != "up" {
		t.Fatalf("ExecStart is %q", words)
	}
	env := make(types.MappingWithEquals)
	for _, pair := range strings.Fields(value("Environment")) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = &value
	}
	if unknown := command.UnknownEnv(pairs(env)); len(unknown) > 0 {
		t.Errorf("nobody reads %q", unknown)
	}
	settings, err := command.Settings("up", words[2:], lookupIn(env))
	if err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	if listen := listens(settings); listen != app.DefaultListen {
		t.Errorf("it listens on %s; IPAddressAllow and the proxies need %s", listen, app.DefaultListen)
	}
	for _, s := range settings {
		switch s.Name {
		case "backup-root", "store":
			if dir := strings.TrimPrefix(s.Value, "pebble:"); !strings.HasPrefix(dir, "/var/lib/countmill/") {
				t.Errorf("--%s is in %s; ProtectSystem leaves /var/lib/countmill writable only", s.Name, dir)
			}
		case "backup-every", "backup-keep":
			if d, err := time.ParseDuration(s.Value); err != nil || d == 0 {
				t.Errorf("--%s is %q: there are no regular backups (%v)", s.Name, s.Value, err)
			}
		}
	}
	stop, err := strconv.Atoi(value("TimeoutStopSec"))
	if limit := app.Defaults(app.Up).ShutdownTimeout; err != nil || time.Duration(stop)*time.Second <= limit {
		t.Errorf("TimeoutStopSec is %q, want more than --shutdown-timeout, %s", value("TimeoutStopSec"), limit)
	}
	if value("Type") != "notify" || value("WatchdogSec") == "" {
		t.Error("the unit does not wait for reports")
	}
}

// systemd accepts the unit, and gives it a good score: the score of docs/howto/one-machine.md, if this is
// the version of systemd that the page names.
func TestUnitInSystemd(t *testing.T) {
	t.Parallel()
	analyze := needed(t, "systemd-analyze")
	text, value := unit(t)
	here := filepath.Join(t.TempDir(), "countmill.service") // with a binary that exists
	installed := strings.Fields(value("ExecStart"))[0]
	if err := os.WriteFile(here, []byte(strings.ReplaceAll(text, "ExecStart="+installed, "ExecStart=/bin/sh")), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, analyze, "verify", "--man=no", here).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(ctx, analyze, "security", "--offline=true", "--threshold="+strconv.Itoa(exposure), here).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	page, err := os.ReadFile("../docs/howto/one-machine.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`gives it ([0-9.]+) of 10 with systemd (\d+)`).FindSubmatch(page)
	scored := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if documented == nil || scored == nil {
		t.Fatalf("no score and version in docs/howto/one-machine.md, or no score in %s", out)
	}
	version, err := exec.CommandContext(ctx, analyze, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(string(version), "systemd "+string(documented[2])+" ") && !bytes.Equal(scored[1], documented[1]) {
		t.Errorf("the score is %s; docs/howto/one-machine.md has %s", scored[1], documented[1])
	}
}

// needed returns the path of a program. Without it the test skips, or fails if COUNTMILL_TEST_REQUIRE has
// "deploy".
func needed(t *testing.T, program string) string {
	t.Helper()
	found, err := exec.LookPath(program)
	if err == nil {
		return found
	}
	if slices.Contains(strings.Split(os.Getenv("COUNTMILL_TEST_REQUIRE"), ","), "deploy") {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}
