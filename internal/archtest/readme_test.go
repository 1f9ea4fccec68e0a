package archtest

import (
	"bytes"
	"context"
	"net"
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

	"github.com/countmill/countmill/internal/app"
)

const (
	// up is the command that README starts; everything else is run against it.
	up = "go run ./cmd/countmill up"
	// documented is the address that README's commands name.
	documented = app.DefaultListen
)

// notRun are the shell blocks of README that this test does not run.
var notRun = map[string]string{
	"go test ./...": "this test is part of it",
}

// A block is a fenced block of a Markdown file.
type block struct{ language, text string }

func blocks(markdown string) []block {
	var found []block
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(markdown, -1) {
		found = append(found, block{m[1], m[2]})
	}
	return found
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A reader of README types its commands one after the other. What it shows after a
// command is what the command writes, apart from times.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs countmill")
	}
	listen := free(t)
	env := append(os.Environ(),
		"COUNTMILL_LISTEN="+listen,
		"COUNTMILL_SERVER=http://"+listen,
		"COUNTMILL_STORE=pebble:"+filepath.Join(t.TempDir(), "data"),
		"PATH="+curl(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	started := false
	all := blocks(readme(t))
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
			t.Fatalf("README shows %q before %q", command, up)
		}
		got := shell(t, env, strings.ReplaceAll(command, documented, listen))
		if i+1 == len(all) || all[i+1].language != "json" && all[i+1].language != "text" {
			continue
		}
		if diff := cmp.Diff(mask(all[i+1].text), mask(got)); diff != "" {
			t.Errorf("%s\nwrites something else than README shows (-README +got):\n%s", command, diff)
		}
	}
	if !started {
		t.Errorf("README has no block %q", up)
	}
}

// free is an address that nobody listens on, a moment ago.
func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
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
		case <-time.After(time.Minute):
			t.Error("countmill does not stop")
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", up, log.String())
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Minute); ; <-tick.C { // a build with an empty cache is slow
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
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
func TestReadmeConfiguration(t *testing.T) {
	t.Parallel()
	_, settings, err := app.Parse(app.Up, nil, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, s := range settings {
		want = append(want, s.Name+" "+s.Value)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `([^`]*)` \\|").FindAllStringSubmatch(readme(t), -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("README's configuration table is not what the flags are (-flags +README):\n%s", diff)
	}
}

// Go code in README is a part of a test that is compiled and run.
func TestReadmeGo(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(root + "/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks(readme(t)) {
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

// Links to files of the repository lead somewhere, in every document of its root.
func TestLinks(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob(root + "/*.md")
	if err != nil || len(documents) < 4 {
		t.Fatalf("got documents %q, %v", documents, err)
	}
	for _, doc := range documents {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s links to %s: %v", filepath.Base(doc), m[1], err)
			}
		}
	}
}
