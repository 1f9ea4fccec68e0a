package deploy_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// trial is the script of the machine: the commands of the page in places of %s, with checks between them.
const trial = `
restarts() { systemctl show countmill --property NRestarts --value; }
after() { # after N: waits until systemd has restarted countmill N times, and it is ready
	for i in $(seq 90); do [ "$(restarts)" = "$1" ] && break; sleep 1; done
	systemctl start countmill && echo "restarts $(restarts), total $(countmill get a)"
}
cd /mnt/shared
%s
%s
export COUNTMILL_TOKEN_FILE=/root/operator.token
countmill incr a 5
systemctl kill --signal STOP countmill
after 1
echo "watchdog $(journalctl --unit countmill | grep -c 'Watchdog timeout') stacks $(journalctl --unit countmill | grep -c 'goroutine .*:$')"
systemctl kill --signal KILL countmill
after 2
countmill backup
countmill incr a 1
%s
echo "restored $(countmill get a)"
systemctl stop countmill
echo "result $(systemctl show countmill --property Result --value)"
journalctl --unit countmill --lines 20
`

// A systemd of its own starts the unit by the commands of docs/howto/one-machine.md, restarts it when it hangs and when it is
// killed, and starts it on a restored backup. Nothing is lost.
func TestUnitUnderSystemd(t *testing.T) {
	if os.Getenv("COUNTMILL_TEST_INIT") == "" {
		t.Skip("boots systemd: run it as root with COUNTMILL_TEST_INIT=1")
	}
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	if err := os.MkdirAll(filepath.Join(shared, "deploy"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(shared, "deploy", "systemd"), os.DirFS("systemd")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(shared, "countmill"), "../cmd/countmill").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	install, start, restore := pageCommands(t)
	if err := os.WriteFile(filepath.Join(shared, "trial.sh"), fmt.Appendf(nil, trial, install, start, restore), 0o644); err != nil {
		t.Fatal(err)
	}
	machine := exec.CommandContext(ctx, needed(t, "unshare"), "--mount", "testdata/init/machine.sh", dir)
	console, ended := machine.CombinedOutput()
	out, err := os.ReadFile(filepath.Join(shared, "out"))
	if err != nil {
		t.Fatalf("the machine did not run the trial: %v, %v\n%s", ended, err, console)
	}
	t.Logf("%s", out)
	for _, want := range []string{
		`(?m)^ready$`, `(?m)^restarts 1, total 5$`, `(?m)^watchdog [1-9]\d* stacks [1-9]`, `(?m)^restarts 2, total 5$`,
		`(?m)^restored 5$`, `(?m)^result success$`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("no line of the output matches %s", want)
		}
	}
}

// pageCommands returns the commands of docs/howto/one-machine.md that install countmill, start it, and restore a backup.
func pageCommands(t *testing.T) (install, start, restore string) {
	t.Helper()
	page, err := os.ReadFile("../docs/howto/one-machine.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```text\n(.*?)```").FindAllSubmatch(page, -1) {
		switch block := string(m[1]); {
		case strings.Contains(block, "useradd"):
			install = block
		case strings.Contains(block, "systemctl enable"):
			start = block
		case strings.Contains(block, "countmill restore"):
			restore = block
		}
	}
	if install == "" || start == "" || restore == "" {
		t.Fatalf("docs/howto/one-machine.md lacks commands: install %q, start %q, restore %q", install, start, restore)
	}
	return install, start, restore
}
