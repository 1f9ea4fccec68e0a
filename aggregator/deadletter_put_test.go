package aggregator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// putSizes records the number of letters before each write, and answers the write.
func putSizes(st *protocoltest.Store, answers ...protocoltest.Answer) (written func() []int) {
	var before []int
	script := protocoltest.Script(answers...)
	st.On("write letter", func(n int) protocoltest.Answer {
		before = append(before, len(st.DeadLetters()))
		return script(n)
	})
	return func() (each []int) {
		for i, n := range append(before[1:], len(st.DeadLetters())) {
			each = append(each, n-before[i])
		}
		return each
	}
}

// A letter in another database would be lost: its message is acknowledged.
func TestNoDeadLetterGoesToAnotherDatabase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{DeadLetterRate: 1})
		for i := range 100 {
			r.sendBytes(t, []byte(strings.Repeat("y", i+1)))
		}
		r.store.DB.Fail(store.ErrOtherDatabase, 0)
		settle(store.CheckEvery + time.Second)
		written := len(r.store.DeadLetters())
		settle(time.Minute)
		if more := len(r.store.DeadLetters()) - written; more > 0 || written == 0 {
			t.Errorf("%d letters are in another database, and %d more after the check that said so", written, more)
		}
		r.store.DB.Fail(nil, 0)
		settle(2 * time.Minute)
		if got := len(r.store.DeadLetters()); got != 100 {
			t.Errorf("%d letters, want 100 after the database is back", got)
		}
	})
}

// A letter that cannot be written would block the others of its call for ever.
func TestAfterAFailureDeadLettersAreWrittenAloneUntilOneIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		written := putSizes(st, protocoltest.UnknownNotApplied)
		r := run(t, st, aggregator.Config{})
		for i := range 30 {
			r.sendBytes(t, []byte(strings.Repeat("y", i+1)))
		}
		settle(time.Minute)
		got := written()
		if !slices.Equal(got[:2], []int{0, 1}) {
			t.Fatalf("letters written in each call: %v, want none in the first, then one", got)
		}
		if most := slices.Max(got[2:]); most < 5 {
			t.Errorf("letters written in each call: %v, want several at once after one was written", got)
		}
		if n := len(st.DeadLetters()); n != 30 {
			t.Errorf("%d of 30 letters written", n)
		}
	})
}

// A flood is slowed down to the rate, and not below it.
func TestDeadLettersAreWrittenAtTheirRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{DeadLetterRate: 50})
		for i := range 400 {
			r.sendBytes(t, []byte(strings.Repeat("y", i+1)))
		}
		settle(4 * time.Second)
		if got := len(r.store.DeadLetters()); got < 200 || got > 260 {
			t.Errorf("%d letters in 4 s at 50 a second, want 200 and the first second's 50 at once", got)
		}
	})
}
