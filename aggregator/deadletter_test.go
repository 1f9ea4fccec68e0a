package aggregator_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

func identified(id string, delta int64) wire.Part {
	return wire.CutIdentified(countmill.Increment{Counter: "a", Delta: delta, ID: id})
}

// deadTotals is the sum of the deltas of all dead letters by counter. Every letter must be a
// readable batch.
func (r *rig) deadTotals(t *testing.T) map[string]int64 {
	t.Helper()
	sums := make(map[string]int64)
	for _, d := range r.store.DeadLetters() {
		b, err := wire.Decode(d.Payload)
		if err != nil {
			t.Errorf("dead letter %s (%s) cannot be replayed: %v", d.Key, d.Reason, err)
			continue
		}
		for _, p := range b.Parts {
			for _, e := range p.Entries {
				sums[e.Counter] += e.Delta
			}
		}
	}
	return sums
}

func TestADeadLetterThatCannotBeWrittenHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.DB.OnCall(func(c *memory.Call) (a memory.Answer) {
			if slices.ContainsFunc(c.Changes, func(x engine.Change) bool { return bytes.Contains(x.Data, []byte("xxx")) }) {
				a.Err = engine.ErrRefused
			}
			return a
		})
		r := run(t, st, aggregator.Config{})
		huge := r.sendBytes(t, bytes.Repeat([]byte("x"), 2<<20))
		for range 30 {
			r.sendBytes(t, []byte(strings.Repeat("y", len(r.sent))))
		}
		settle(10 * time.Minute)
		if got := len(r.store.DeadLetters()); got != 30 {
			t.Errorf("%d dead letters, want the 30 that can be written", got)
		}
		if acked(huge) {
			t.Error("acknowledged although its dead letter is not written")
		}
		if err := r.agg.Ready(); err != nil {
			t.Errorf("not ready although messages are taken: %v", err)
		}
	})
}

func TestNotReadyWhileDeadLettersKeepMessagesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.On("write letter", func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		r := run(t, st, aggregator.Config{HeldMessages: 20})
		for i := range 20 {
			r.sendBytes(t, []byte(strings.Repeat("y", i+1)))
		}
		settle(time.Minute)
		if r.agg.Ready() == nil {
			t.Error("ready although no message is taken")
		}
		st.On("write letter", nil)
		settle(2 * time.Minute)
		if err := r.agg.Ready(); err != nil || len(st.DeadLetters()) != 20 {
			t.Errorf("after recovery: %v, %d dead letters, want 20", err, len(st.DeadLetters()))
		}
	})
}

// A client that sends one id with new deltas all the time must not slow down others.
func TestManyRivalsOfOneIDAreDeadLetteredTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{DeadLetterRate: 1000})
		for i := range 1000 {
			r.send(t, identified("x", int64(i+1)))
		}
		settle(3 * time.Second)
		if got := len(r.store.DeadLetters()); got != 999 {
			t.Errorf("%d dead letters after 3 s, want 999", got)
		}
		r.want(t, map[string]int64{"a": 1})
		if got := r.store.FoldCalls(); got > 2 {
			t.Errorf("%d commits for one part that counts", got)
		}
	})
}

func TestRivalsOfARefusedPartHaveTheirTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(_ int, c *store.Commit) protocoltest.Answer {
			if c.Adds[0].Delta == 1 {
				return protocoltest.Refused
			}
			return protocoltest.OK
		})
		r := run(t, st, aggregator.Config{})
		for _, delta := range []int64{1, 2, 3, 2} {
			r.send(t, identified("x", delta))
		}
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 2})
		if got := r.deadTotals(t)["a"]; got != 4 {
			t.Errorf("dead letters hold %d, want 1 and 3", got)
		}
	})
}

// The deduplication window of a foreign message counts from its publish time, also if it cannot
// be read.
func TestADeadLetterHasTheBrokersTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		published := time.Now().Add(-time.Hour)
		settle(time.Hour)
		r.sendJSON(t, "m1", `{"counter":""}`, published)
		at := time.Now()
		settle(time.Minute)
		letters := r.store.DeadLetters()
		if len(letters) != 1 || !letters[0].Time.Equal(published) || !letters[0].At.Equal(at) {
			t.Errorf("dead letters %+v, want one with time %s, of %s", letters, published, at)
		}
	})
}

// A flood of dead letters must not flood the log: one line a second counts them.
func TestDeadLettersAreLoggedOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer
		r := run(t, large(t), aggregator.Config{DeadLetterRate: 5, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		for i := range 200 {
			r.sendBytes(t, []byte(strings.Repeat("y", i+1)))
		}
		settle(2 * time.Second)
		_ = r.finish() // writes what its 20 s are enough for, and gives the rest back
		lines := regexp.MustCompile(`msg="dead letters" letters=(\d+) source=\S+ reason=".+" key=\S+`).FindAllStringSubmatch(out.String(), -1)
		counted := 0
		for _, line := range lines {
			n, _ := strconv.Atoi(line[1])
			counted += n
		}
		if want := len(r.store.DeadLetters()); counted != want || want < 50 || len(lines) > 25 {
			t.Errorf("%d lines say %d, of %d dead letters in 22 s", len(lines), counted, want)
		}
	})
}
