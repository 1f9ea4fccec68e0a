package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/bench/internal/system"
)

// TestMain also runs the bare handler, which the command starts from its own program.
func TestMain(m *testing.M) {
	if args := os.Args[1:]; len(args) == 3 && args[0] == "serve-http" {
		if err := system.ServeHTTP(context.Background(), args[1], args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds countmill and runs wrk")
	}
	var out strings.Builder
	err := Run(t.Context(), []string{"-quick"}, &out, io.Discard)
	if errors.Is(err, server.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| "+memory+" | ") {
		t.Errorf("no row of %q in\n%s", memory, out.String())
	}
	t.Log(out.String())
}

// A wrong answer, or one from the store instead of the cache, is an error.
func TestCheck(t *testing.T) {
	t.Parallel()
	check := func(answer string) error {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
		defer s.Close()
		return (&config{counters: 1}).check(t.Context(), s.Listener.Addr().String())
	}
	if err := check(`{"totals":[]}`); err == nil {
		t.Error("no total: got no error")
	}
	for answer, want := range map[string]error{
		`{"totals":[{"total":1000,"source":"cache"}]}`: nil,
		`{"totals":[{"total":1000,"source":"store"}]}`: load.ErrWrong,
		`{"totals":[{"total":999,"source":"cache"}]}`:  load.ErrWrong,
	} {
		if err := check(answer); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", answer, err, want)
		}
	}
}
