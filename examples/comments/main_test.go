package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/embedded"
	"github.com/countmill/countmill/internal/testing/child"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// childEnv has the directory of the process that is killed.
const childEnv = "COUNTMILL_TEST_COMMENTS_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := run(context.Background(), "127.0.0.1:0", dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A site is the program in a process of its own.
type site struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	base atomic.Pointer[string]
}

func newSite(t *testing.T) *site {
	s := &site{t: t, dir: t.TempDir()}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *site) start() {
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), childEnv+"="+s.dir)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	guard, err := child.GuardProcess(s.cmd.Process.Pid)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(guard.End)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatalf("the program did not start: %v", err)
	}
	base := strings.TrimSpace(line)
	s.base.Store(&base)
}

func (s *site) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

var errBroken = errors.New("no answer")

// call makes one request. An answer that is not 200 is an error; so is none.
func (s *site) call(method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, *s.base.Load()+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("%w: %d %s: %w", errBroken, res.StatusCode, answer, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, answer)
	}
	return json.Unmarshal(answer, into)
}

// post posts a comment until it is answered, and returns its key.
func (s *site) post(c comment) string {
	var got struct{ Key string }
	for deadline := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		err := s.call("POST", "/comments", c, &got)
		if err == nil {
			return got.Key
		}
		if !errors.Is(err, errBroken) || time.Now().After(deadline) || s.t.Context().Err() != nil {
			s.t.Errorf("post %+v: %v", c, err)
			return ""
		}
	}
}

// walk goes over all pages, by next from the oldest comment or by prev from the newest, and returns the keys
// in the order of the list.
func (s *site) walk(forward bool, limit int) (keys []string) {
	s.t.Helper()
	param, at := "before", ""
	if forward {
		param = "after"
	}
	for pages := 0; ; pages++ {
		var p page
		if err := s.call("GET", fmt.Sprintf("/comments?limit=%d&%s=%s", limit, param, url.QueryEscape(at)), nil, &p); err != nil {
			s.t.Fatalf("page %d: %v", pages, err)
		}
		var found []string
		for _, c := range p.Comments {
			found = append(found, c.Key)
		}
		if forward {
			keys, at = append(keys, found...), p.Next
		} else {
			keys, at = append(found, keys...), p.Prev
		}
		if at == "" {
			return keys
		}
		if len(p.Comments) != limit {
			s.t.Fatalf("page %d has %d comments and is not the last one, want %d", pages, len(p.Comments), limit)
		}
	}
}

// Eight writers post while the process is killed again and again, and repeat requests without an answer. Each
// comment is in the list once. Pages lead over all of them in both directions.
func TestPagesAfterKills(t *testing.T) {
	longtest.Only(t, "kills a process again and again")
	const writers, each, kills = 8, 60, 6
	s := newSite(t)
	var mu sync.Mutex
	posted := make(map[string][]string) // the keys of each user's comments, in the order of the posts
	var total atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			user := fmt.Sprint("user ", w/2) // two writers of each user
			for n := range each {
				// Many comments have the same time.
				at := time.Now().UTC().Truncate(50 * time.Millisecond)
				k := s.post(comment{User: user, Text: "text", ID: fmt.Sprint(w, "-", n), Time: at})
				mu.Lock()
				posted[user] = append(posted[user], k)
				mu.Unlock()
				total.Add(1)
			}
		})
	}
	for kill := range int64(kills) {
		for deadline := time.Now().Add(time.Minute); total.Load() < (kill+1)*writers*each/(kills+1); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d comments after a minute", total.Load())
			}
		}
		<-time.After(rand.N(5 * time.Millisecond)) // at any moment of a post
		s.kill()
		s.start()
		checkOrder(t, s.walk(true, 7)) // while others post
	}
	all.Wait()

	var want []string
	for _, keys := range posted {
		want = append(want, keys...)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 7, 50, maxLimit} {
		for _, forward := range []bool{true, false} {
			if got := s.walk(forward, limit); !slices.Equal(got, want) {
				t.Errorf("pages of %d, forward %t: %d comments, want the %d that were posted, in order", limit, forward, len(got), len(want))
			}
		}
	}
	checkNumbers(t, posted)
}

func checkOrder(t *testing.T, keys []string) {
	t.Helper()
	for i := 1; i < len(keys); i++ {
		if keys[i-1] >= keys[i] {
			t.Errorf("%s comes before %s", keys[i-1], keys[i])
		}
	}
}

// checkNumbers: each user's comments have the numbers from 1 on, without a gap, because every post was
// repeated until it was answered.
func checkNumbers(t *testing.T, posted map[string][]string) {
	t.Helper()
	for user, keys := range posted {
		var numbers []int
		for _, k := range keys {
			var n int
			if _, err := fmt.Sscanf(k[strings.LastIndex(k, "/")+1:], "%x", &n); err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, n)
		}
		slices.Sort(numbers)
		for i, n := range numbers {
			if n != i+1 {
				t.Fatalf("%s: the sorted numbers are %v, want 1 to %d", user, numbers, len(numbers))
			}
		}
	}
}

// A reader goes forward and back over a few pages by the keys of the answers.
func TestNextAndPrevious(t *testing.T) {
	l := openList(t)
	at := time.Now()
	for n := range 5 {
		if _, err := l.post(t.Context(), comment{User: "ann", Text: fmt.Sprint(n), ID: fmt.Sprint(n), Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	texts := func(p page, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, c := range p.Comments {
			all = append(all, c.Text)
		}
		return strings.Join(all, " ")
	}
	first, err := l.pageAfter("", 2)
	if got := texts(first, err); got != "0 1" || first.Prev != "" || first.Next == "" {
		t.Errorf("first page: got %q, %+v", got, first)
	}
	second, err := l.pageAfter(first.Next, 2)
	if got := texts(second, err); got != "2 3" {
		t.Errorf("second page: got %q", got)
	}
	if got := texts(l.pageBefore(second.Prev, 2)); got != "0 1" {
		t.Errorf("back to the first page: got %q", got)
	}
	last, err := l.pageAfter(second.Next, 2)
	if got := texts(last, err); got != "4" || last.Next != "" {
		t.Errorf("last page: got %q, %+v", got, last)
	}
	if got := texts(l.pageBefore("", 2)); got != "3 4" {
		t.Errorf("the newest page: got %q", got)
	}
	if _, err := l.post(t.Context(), comment{User: "ann", Text: "no id"}); err == nil {
		t.Error("a comment without an id and a time was stored")
	}
}

// openList is an empty list in this process.
func openList(t *testing.T) *list {
	t.Helper()
	dir := t.TempDir()
	numbers, err := embedded.Open(filepath.Join(dir, "countmill"))
	if err != nil {
		t.Fatal(err)
	}
	tbl, err := openTable(filepath.Join(dir, "comments"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(tbl.close(), numbers.Close()); err != nil {
			t.Error(err)
		}
	})
	return &list{numbers, tbl}
}

// The command in the comment of package main posts a comment. A list without comments is an empty array.
func TestCommandOfTheComment(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	body := regexp.MustCompile(`(?m)^//\tcurl -d (.*) http://`).FindSubmatch(source)
	if body == nil {
		t.Fatal("main.go has no curl -d")
	}
	sent, err := exec.Command("sh", "-c", "printf %s "+string(body[1])).Output()
	if err != nil {
		t.Fatal(err)
	}
	site := routes(openList(t))
	call := func(method string, body []byte) string {
		w := httptest.NewRecorder()
		site.ServeHTTP(w, httptest.NewRequest(method, "/comments", bytes.NewReader(body)))
		if w.Code != http.StatusOK {
			t.Fatalf("%s %s: got %d %s", method, body, w.Code, w.Body)
		}
		return w.Body.String()
	}
	if got := call("GET", nil); got != `{"comments":[]}`+"\n" {
		t.Errorf("no comments: got %s", got)
	}
	call("POST", sent)
	if got := call("GET", nil); !strings.Contains(got, `"text":"Hello"`) {
		t.Errorf("after %s: got %s", sent, got)
	}
}
