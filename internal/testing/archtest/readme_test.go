package archtest

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/testing/freeport"
)

const (
	// up is the command that README starts; everything else is run against it.
	up = "go run ./cmd/countmill up"
	// documented is the address that README's commands name.
	documented = app.DefaultListen
)

// notRun are the shell blocks of documents that this test does not run.
var notRun = map[string]string{
	"go test ./...": "this test is part of it",
}

// A block is a fenced block of a Markdown file.
type block struct{ document, language, text string }

const (
	readme     = "README.md"
	operations = "docs/operations.md"
)

func blocks(t *testing.T, document string) []block {
	t.Helper()
	var found []block
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(read(t, document), -1) {
		found = append(found, block{document, m[1], m[2]})
	}
	return found
}

func read(t *testing.T, document string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A reader of README types its commands one after the other, then those of the operator's
// page. What they show after a command is what the command writes, apart from times.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs countmill")
	}
	listen := keep(t)
	env := append(os.Environ(),
		"COUNTMILL_LISTEN="+listen,
		"COUNTMILL_SERVER=http://"+listen,
		"COUNTMILL_STORE=pebble:"+filepath.Join(t.TempDir(), "data"),
		"PATH="+curl(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	started := false
	all := append(blocks(t, readme), blocks(t, operations)...)
	for i, b := range all {
		command := strings.TrimSpace(b.text)
		switch {
		case b.language != "sh" || notRun[command] != "":
			continue
		case command == up:
			start(t, env, listen)
			started = true
			continue
		case !started:
			t.Fatalf("%s shows %q before %q", b.document, command, up)
		}
		got := shell(t, env, strings.ReplaceAll(command, documented, listen))
		if i+1 == len(all) || all[i+1].language != "json" && all[i+1].language != "text" {
			continue
		}
		if diff := cmp.Diff(mask(all[i+1].text), mask(got)); diff != "" {
			t.Errorf("%s\nwrites something else than %s shows (-shown +got):\n%s", command, b.document, diff)
		}
	}
	if !started {
		t.Errorf("README has no block %q", up)
	}
}

// keep is an address that nobody else is given while countmill is built, and starts.
func keep(t *testing.T) string {
	t.Helper()
	kept, err := freeport.Keep()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Free() })
	return kept.Addr()
}

// start runs README's first command, as it stands, until the test ends.
func start(t *testing.T, env []string, listen string) {
	t.Helper()
	// go run hands no signal on, so its group is stopped as a whole, as by Ctrl-C.
	cmd := exec.Command("sh", "-c", "exec "+up)
	cmd.Dir, cmd.Env = root, env
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	interrupt := inGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		interrupt()
		select {
		case <-ended:
		case <-time.After(5 * time.Minute):
			t.Error("countmill does not stop")
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", up, log.String())
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(15 * time.Minute); ; <-tick.C { // a build with an empty cache is slow
		res, err := http.Get("http://" + listen + "/readyz")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v", up, err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready: %v", up, err)
		}
	}
}

func shell(t *testing.T, env []string, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", command)
	cmd.Dir, cmd.Env = root, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s\n%v: %s", command, err, stderr.String())
	}
	return string(out)
}

// masks are what differs from run to run.
var masks = []struct{ what, with string }{
	{`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"`, `"TIME"`},
	{`"lag":(\d[0-9.e-]*|null)`, `"lag":LAG`},
}

func mask(text string) []string {
	for _, m := range masks {
		text = regexp.MustCompile(m.what).ReplaceAllString(text, m.with)
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// The configuration table is the flags of `up` with their defaults, in their order.
func TestConfigurationTable(t *testing.T) {
	t.Parallel()
	settings, err := command.Settings("up", nil, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, s := range settings {
		want = append(want, s.Name+" "+s.Value)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `([^`]*)` \\|").FindAllStringSubmatch(read(t, operations), -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the configuration table of %s is not what the flags are (-flags +table):\n%s", operations, diff)
	}
}

// Go code in README is a part of a test that is compiled and run.
func TestReadmeGo(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(root + "/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks(t, readme) {
		if b.language == "go" && !contains(lines(string(example)), lines(b.text)) {
			t.Errorf("example_test.go does not hold this code of README:\n%s", b.text)
		}
	}
}

// lines are without their indents.
func lines(text string) []string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

func contains(all, part []string) bool {
	for i := range all {
		if len(all)-i >= len(part) && slices.Equal(all[i:i+len(part)], part) {
			return true
		}
	}
	return false
}
