package archtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/emulator"
)

const (
	// up is the command that README starts; all other commands run against it.
	up = "./countmill up"
	// clone begins the block that installs countmill.
	clone = "git clone https://github.com/countmill/countmill\ncd countmill\n"
	// documented is the address that the documents' commands name.
	documented = app.DefaultListen

	readme = "README.md"
	// visits begins the block that makes a module of README's program: TestReadmeProgram runs it.
	visits = "go mod init visits\n"
)

// notRun are the shell blocks of documents that this test does not run.
var notRun = map[string]string{
	"go test ./...": "this test is part of it",
}

// A block is a fenced block of a Markdown file.
type block struct{ document, language, text string }

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

// documents are README and every page of docs whose name matches one of the patterns.
func documents(t *testing.T, patterns ...string) []string {
	t.Helper()
	all := []string{readme}
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("got documents %q, %v", found, err)
		}
		for _, name := range found {
			all = append(all, filepath.ToSlash(strings.TrimPrefix(name, root+"/")))
		}
	}
	return all
}

// A reader types the commands of a document one after the other. Each command writes the output that
// the document shows after it, apart from times. README's commands run the program that its first block
// builds, those of other pages have countmill installed.
func TestDocumentCommands(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs countmill")
	}
	tool(t, "curl", "scripts")
	bin := t.TempDir()
	shell(t, root, os.Environ(), "go build -o '"+bin+"/countmill' ./cmd/countmill")
	path := bin + string(os.PathListSeparator) + os.Getenv("PATH")
	database := postgresEnv(t)
	for _, document := range documents(t, "docs/README.md", "docs/start.md", "docs/recipes.md", "docs/howto/*.md", "docs/reference/*.md", "docs/runbook.md") {
		all := slices.DeleteFunc(blocks(t, document), func(b block) bool {
			return b.language == "sh" && database == nil && regexp.MustCompile(`createdb|postgres://`).MatchString(b.text)
		})
		if !slices.ContainsFunc(all, func(b block) bool { return b.language == "sh" }) {
			continue
		}
		t.Run(document, func(t *testing.T) {
			listen := keep(t)
			r := &typist{listen: listen, dir: t.TempDir(), env: append(os.Environ(),
				"COUNTMILL_LISTEN="+listen, "COUNTMILL_SERVER=http://"+listen, "GOBIN="+bin, "PATH="+path)}
			r.env = append(r.env, database...)
			r.typeAll(t, all)
		})
	}
}

// postgresEnv has the variables by which commands find a PostgreSQL; nil without one, and then no command that needs it is typed.
func postgresEnv(t *testing.T) (env []string) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) {
		u, err := url.Parse(emulator.Postgres(t))
		if err != nil {
			t.Fatal(err)
		}
		env = []string{"PGHOST=" + u.Hostname(), "PGPORT=" + u.Port(), "PGUSER=" + u.User.Username()}
	})
	return env
}

// A typist follows one document.
type typist struct {
	listen, dir string
	env         []string
	stop        func()              // ends the countmill that runs; nil where none does
	watching    map[string]*watcher // second terminals, by the text that they must show before the next up, or at the end
}

func (r *typist) typeAll(t *testing.T, all []block) {
	t.Helper()
	for i, b := range all {
		command := strings.TrimSpace(b.text)
		var shown *string
		if i+1 < len(all) && (all[i+1].language == "json" || all[i+1].language == "text") {
			shown = &all[i+1].text
		}
		switch {
		case b.language != "sh" || notRun[command] != "" || strings.HasPrefix(command, strings.TrimSpace(visits)):
		case strings.HasPrefix(command, clone):
			// This checkout is the clone, and the program is built where the other commands are typed.
			shell(t, root, r.env, strings.ReplaceAll(strings.TrimPrefix(command, clone), "-o countmill ", "-o '"+r.dir+"/countmill' "))
		case strings.HasPrefix(command, up) || strings.HasPrefix(command, "countmill up"):
			r.up(t, command)
		case r.stop == nil && b.document == readme:
			t.Fatalf("%s shows %q before %q", b.document, command, up)
		case strings.HasPrefix(command, "countmill watch"):
			r.watch(t, command, shown)
		default:
			if r.stop == nil && b.document != readme {
				r.up(t, "countmill up")
			}
			r.run(t, b.document, command, shown)
		}
	}
	r.finish(t)
}

// finish waits until second terminals show their text.
func (r *typist) finish(t *testing.T) {
	t.Helper()
	for want, w := range r.watching {
		w.await(t, want, func(text string) bool { return cmp.Equal(mask(text), mask(want)) })
	}
	r.watching = nil
}

func (r *typist) run(t *testing.T, document, command string, shown *string) {
	t.Helper()
	got := shell(t, r.dir, r.env, strings.ReplaceAll(command, documented, r.listen))
	if shown == nil {
		return
	}
	if diff := cmp.Diff(mask(*shown), mask(got)); diff != "" {
		t.Errorf("%s\nwrites something else than %s shows (-shown +got):\n%s", command, document, diff)
	}
}

// up stops the running countmill and starts another.
func (r *typist) up(t *testing.T, command string) {
	t.Helper()
	r.finish(t)
	if r.stop != nil {
		r.stop()
	}
	r.stop = start(t, r.dir, r.env, r.listen, command)
}

// A watcher is a command in a second terminal.
type watcher struct {
	mu    sync.Mutex
	wrote bytes.Buffer
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote.Write(p)
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote.String()
}

// watch starts the command and returns when it has written a line.
func (r *typist) watch(t *testing.T, command string, shown *string) {
	t.Helper()
	if shown == nil {
		t.Fatalf("what %q writes is not shown", command)
	}
	w := new(watcher)
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Dir, cmd.Env, cmd.Stdout = r.dir, r.env, w
	interrupt := inGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		interrupt()
		_ = cmd.Wait()
	})
	w.await(t, command, func(text string) bool { return strings.Contains(text, "\n") })
	if r.watching == nil {
		r.watching = map[string]*watcher{}
	}
	r.watching[*shown] = w
}

func (w *watcher) await(t *testing.T, what string, done func(text string) bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !done(w.String()); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: the second terminal shows\n%s", what, w)
		}
	}
}

// keep reserves an address while countmill is built and starts.
func keep(t *testing.T) string {
	t.Helper()
	kept, err := child.KeepPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Free() })
	return kept.Addr()
}

// start runs the command of a server, unchanged, until stop is called or the test ends.
func start(t *testing.T, dir string, env []string, listen, command string) (stop func()) {
	t.Helper()
	// go run hands no signal on, so its group is stopped as a whole, as by Ctrl-C.
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Dir, cmd.Env = dir, env
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	interrupt := inGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = sync.OnceFunc(func() {
		interrupt()
		select {
		case <-ended:
		case <-time.After(5 * time.Minute):
			t.Error("countmill does not stop")
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", command, log.String())
		}
	})
	t.Cleanup(stop)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(15 * time.Minute); ; <-tick.C { // a build with an empty cache is slow
		res, err := http.Get("http://" + listen + "/readyz")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK && reported(listen) {
				return stop
			}
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", command, err, log.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready: %v", command, err)
		}
	}
}

// reported reports whether readers know the aggregator, if there is one. Until its second report,
// "countmill status" says that there is none.
func reported(listen string) bool {
	res, err := http.Get("http://" + listen + "/v1/overview")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return err == nil && !bytes.Contains(text, []byte(`"aggregators":0,`))
}

func shell(t *testing.T, dir string, env []string, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", command)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s\n%v: %s", command, err, stderr.String())
	}
	return string(out)
}

// masks match text that differs from run to run.
var masks = []struct{ what, with string }{
	{`cmtok_[\w.-]+`, "cmtok_TOKEN"},
	{`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"`, `"TIME"`},
	{`"\d{4}-\d\d-\d\dT00:00:00[+-]\d\d:\d\d"`, `"DAY"`},
	{`"key":"[0-9a-f]{40}"`, `"key":"KEY"`},
	{`\b[0-9a-f]{8}\b`, "TOKEN-ID"},
	{`"lag":(\d[0-9.e-]*|null)`, `"lag":LAG`},
	{`"unseen":\d[0-9.e-]*`, `"unseen":AGE`},
}

func mask(text string) []string {
	for _, m := range masks {
		text = regexp.MustCompile(m.what).ReplaceAllString(text, m.with)
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// A reader saves README's program beside the clone and types the block after it. The test takes the sums of the clone,
// so that it needs no network.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	all := blocks(t, readme)
	at := slices.IndexFunc(all, func(b block) bool { return b.language == "go" })
	if at < 0 || at+2 >= len(all) || !strings.HasPrefix(all[at+1].text, visits) || all[at+2].language != "text" {
		t.Fatalf("README has no Go program with %q and an output after it", visits)
	}
	const sums = "go mod tidy\n"
	if !strings.Contains(all[at+1].text, sums) {
		t.Fatalf("README's block lacks %q", sums)
	}
	clone, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	beside := t.TempDir()
	dir := filepath.Join(beside, "visits")
	if err := errors.Join(os.Symlink(clone, filepath.Join(beside, "countmill")), os.Mkdir(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte(all[at].text), 0o600)); err != nil {
		t.Fatal(err)
	}
	commands := strings.Replace(all[at+1].text, sums, "cp ../countmill/go.sum .\n", 1)
	got := shell(t, dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off"), commands)
	if got != all[at+2].text {
		t.Errorf("README's program prints %q, want %q", got, all[at+2].text)
	}
}

// programs are the documents whose Go code is a whole program, and the tests that run it.
var programs = map[string]string{readme: "TestReadmeProgram", "docs/howto/page-views.md": "TestPageViewsFromPrograms of package client"}

// Go code in documents is a part of a file that is compiled, and run by a test. A whole program has a test of its own.
func TestDocumentGo(t *testing.T) {
	t.Parallel()
	var compiled [][]string
	for _, pattern := range []string{"example_test.go", "client/example_test.go", "embedded/example_test.go", "backend/httpbus/example_test.go", "examples/webserver/*.go"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("got %q, %v", found, err)
		}
		for _, name := range found {
			compiled = append(compiled, lines(read(t, strings.TrimPrefix(filepath.ToSlash(name), root+"/"))))
		}
	}
	for _, document := range documents(t, "docs/README.md", "docs/start.md", "docs/recipes.md", "docs/howto/*.md", "docs/reference/*.md", "docs/runbook.md") {
		for _, b := range blocks(t, document) {
			if programs[document] != "" && strings.HasPrefix(b.text, "package main\n") {
				continue
			}
			if b.language == "go" && !slices.ContainsFunc(compiled, func(file []string) bool { return contains(file, lines(b.text)) }) {
				t.Errorf("no example_test.go, nor examples/webserver, has this code of %s:\n%s", document, b.text)
			}
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
