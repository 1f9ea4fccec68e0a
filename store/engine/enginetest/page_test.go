package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
	"github.com/countmill/countmill/store/engine/memory"
)

const stepEnv = "COUNTMILL_TEST_STEP_OF_ENGINE"

// TestPage runs the tests of each step of the page about engines, in another process, on an engine whose later calls answer
// errors. Each test is in one step.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	failed := func(step int, names string) map[string]bool {
		cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestStep$/^("+names+")$", "-test.v", "-test.timeout", "5m")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", stepEnv, step))
		out, _ := cmd.CombinedOutput()
		outcomes := make(map[string]bool)
		for _, m := range regexp.MustCompile(`--- (\w+): TestStep/(\w+)`).FindAllStringSubmatch(string(out), -1) {
			outcomes[m[2]] = m[1] == "FAIL"
		}
		return outcomes
	}
	_, text, _ := strings.Cut(string(page), "\n1. **")
	text, _, _ = strings.Cut(text, "\n\n")
	steps := regexp.MustCompile(`\n\d\. `).Split(text, -1)
	left := failed(len(steps), ".*")
	if len(left) < 50 {
		t.Fatalf("a finished engine runs %d tests, want all", len(left))
	}
	for i, step := range steps {
		var names []string
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(step, -1) {
			if _, is := left[word]; is {
				names = append(names, word)
				delete(left, word)
			}
		}
		outcomes := failed(i+1, strings.Join(names, "|"))
		for _, name := range names {
			if fails, ran := outcomes[name]; fails || !ran {
				t.Errorf("%s does not pass after step %d", name, i+1)
			}
		}
	}
	for name := range left {
		t.Errorf("%s is in no step of the page", name)
	}
}

func TestStep(t *testing.T) {
	step, err := strconv.Atoi(os.Getenv(stepEnv))
	if err != nil {
		t.Skip("runs in the other process of TestPage")
	}
	enginetest.Run(t, func(t *testing.T, kinds engine.Kinds) *enginetest.Under {
		u := under(t, memory.New(kinds, memory.Options{Limits: databases["directory"]}))
		if step < 7 {
			u.Reopen, u.HoldSyncs, u.CutPower = nil, nil, nil
			u.Engine = unfinished{u.Engine, step}
		}
		return u
	})
}

var errUnfinished = errors.New("not written yet")

// An unfinished engine has the calls of the page up to a step.
type unfinished struct {
	engine.Engine
	step int
}

func (e unfinished) View() engine.View {
	return unfinishedView{e.Engine.View(), e.step}
}

func (e unfinished) Transact(ctx context.Context, soft bool, do func(engine.Tx) error) (engine.Result, error) {
	if e.step < 4 {
		return engine.Result{}, errUnfinished
	}
	return e.Engine.Transact(ctx, soft, do)
}

func (e unfinished) Due(ctx context.Context, kind engine.KindID, before int64, after string, limit int) ([]engine.Key, string, error) {
	if e.step < 5 {
		return nil, "", errUnfinished
	}
	return e.Engine.Due(ctx, kind, before, after, limit)
}

func (e unfinished) Expire(ctx context.Context, kind engine.KindID, before int64) error {
	if e.step < 5 {
		return errUnfinished
	}
	return e.Engine.Expire(ctx, kind, before)
}

func (e unfinished) Check(ctx context.Context, with []engine.Key) (engine.Checked, error) {
	if e.step < 6 {
		return engine.Checked{}, errUnfinished
	}
	return e.Engine.Check(ctx, with)
}

type unfinishedView struct {
	engine.View
	step int
}

func (v unfinishedView) Scan(ctx context.Context, r engine.Range, fields ...engine.FieldID) engine.Rows {
	if v.step < 3 {
		return unfinishedRows{}
	}
	return v.View.Scan(ctx, r, fields...)
}

type unfinishedRows struct{}

func (unfinishedRows) Next() *engine.Row { return nil }
func (unfinishedRows) Err() error        { return errUnfinished }
func (unfinishedRows) Close()            {}
