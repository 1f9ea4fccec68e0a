package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

var ctx = context.Background()

func TestLingerCountsFromTheFirstIncrement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{})
		began := time.Now()
		must(t, p.Add("a", 1))
		time.Sleep(200 * time.Millisecond)
		must(t, p.Add("a", 2))
		must(t, p.Add("b", 5))
		synctest.Wait()
		bus.wantTotals(map[string]int64{})
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		bus.wantTotals(map[string]int64{"a": 3, "b": 5})
		if got := bus.batches[0].Time; !got.Equal(began.Truncate(time.Microsecond)) {
			t.Errorf("batch time: got %s, want that of the first increment, %s", got, began)
		}
		if bus.calls != 1 {
			t.Errorf("got %d messages, want 1", bus.calls)
		}
		closeNow(t, p)
		if err := p.Add("a", 1); !errors.Is(err, countmill.ErrClosed) {
			t.Errorf("Add after Close: got %v, want ErrClosed", err)
		}
	})
}

func TestFlushAndCloseDoNotLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{Linger: time.Hour})
		began := time.Now()
		h, err := p.Counter("h")
		must(t, err)
		must(t, h.Add(-7))
		must(t, errOf(p.Flush(ctx)))
		bus.wantTotals(map[string]int64{"h": -7})
		must(t, h.Add(3))
		must(t, p.Add("h", 4))
		closeNow(t, p)
		bus.wantTotals(map[string]int64{})
		if d := time.Since(began); d != 0 {
			t.Errorf("took %s, want no linger", d)
		}
		if err := h.Add(1); !errors.Is(err, countmill.ErrClosed) {
			t.Errorf("handle after Close: got %v, want ErrClosed", err)
		}
	})
}

// A batch's time is compared with the deduplication window: a request's time is when it was
// added.
func TestABatchHasTheTimeOfItsOldestRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{Linger: time.Minute})
		began := time.Now()
		must(t, errOf(p.Publish(ctx, inc("a", 1))))
		if got := bus.batches[0].Time; !got.Equal(began) {
			t.Errorf("the batch's time is %s, want %s", got, began)
		}
		closeNow(t, p)
	})
}

// Flush must not report a message as sent that the bus does not have, whether it was flushed
// before the call or for it.
func TestFlushReportsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := make(chan struct{})
		bus.blockUntil(release)
		p := open(t, bus, Config{Linger: time.Hour})
		must(t, p.Add("a", 1))
		for _, flushed := range []string{"for it", "before it"} {
			short, cancel := context.WithTimeout(ctx, time.Second)
			if _, err := p.Flush(short); !errors.Is(err, countmill.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("flushed %s: got %v, want ErrOutcomeUnknown and the deadline", flushed, err)
			}
			cancel()
		}
		close(release)
		must(t, errOf(p.Flush(ctx)))
		bus.wantTotals(map[string]int64{"a": 1})
		closeNow(t, p)
	})
}

func TestReadyReportsAnUnavailableBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := time.Now().Add(10 * time.Second)
		bus.answer = func(int, *message.Message) (bool, error) {
			if time.Now().Before(release) {
				return false, errors.New("away")
			}
			return true, nil
		}
		p := open(t, bus, Config{Linger: -1})
		must(t, p.Add("a", 1))
		time.Sleep(time.Second)
		if err := p.Ready(); err != nil {
			t.Errorf("after a second: %v", err)
		}
		time.Sleep(3 * time.Second)
		if err := p.Ready(); err == nil || !strings.Contains(err.Error(), "away") {
			t.Errorf("after 4 seconds: got %v, want the bus's error", err)
		}
		must(t, errOf(p.Flush(ctx)))
		if err := p.Ready(); err != nil {
			t.Errorf("after success: %v", err)
		}
		closeNow(t, p)
	})
}

func TestRequestIsWithdrawnBeforeTheFlushAndUnknownAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := make(chan struct{})
		bus.blockUntil(release)
		p := open(t, bus, Config{Linger: -1, MaxInFlight: 1})
		cause := errors.New("caller left")
		short, cancel := context.WithTimeoutCause(ctx, time.Second, cause)
		defer cancel()
		errs := make(chan error, 2)
		go func() { errs <- errOf(p.Publish(short, inc("flushed", 1))) }()
		synctest.Wait()
		go func() { errs <- errOf(p.PublishKeyed(short, "", "k", inc("open", 1))) }()
		synctest.Wait()
		time.Sleep(time.Second)
		a, b := <-errs, <-errs
		if errors.Is(a, countmill.ErrUnavailable) {
			a, b = b, a
		}
		if !errors.Is(a, countmill.ErrOutcomeUnknown) || !errors.Is(a, cause) {
			t.Errorf("flushed: got %v, want ErrOutcomeUnknown with the cause", a)
		}
		if !errors.Is(b, countmill.ErrUnavailable) || !errors.Is(b, cause) {
			t.Errorf("open: got %v, want ErrUnavailable with the cause", b)
		}
		if s := p.Stats(); s.OpenEntries != 0 || s.OpenBytes != 0 {
			t.Errorf("a withdrawn request holds %d entries, %d bytes", s.OpenEntries, s.OpenBytes)
		}
		close(release)
		must(t, errOf(p.PublishKeyed(ctx, "", "k", inc("other", 2)))) // the key was forgotten
		closeNow(t, p)
		bus.wantTotals(map[string]int64{"flushed": 1, "other": 2})
	})
}

func TestKeyConflictsUntilItsLastCopyIsWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{Linger: time.Minute})
		first, cancelFirst := context.WithCancel(ctx)
		second, cancelSecond := context.WithCancel(ctx)
		errs := make(chan error, 2)
		go func() { errs <- errOf(p.PublishKeyed(first, "me", "k", inc("a", 1))) }()
		go func() { errs <- errOf(p.PublishKeyed(second, "me", "k", inc("a", 1))) }()
		synctest.Wait()
		other := func(principal string) error {
			gone, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return errOf(p.PublishKeyed(gone, principal, "k", inc("a", 2)))
		}
		cancelFirst()
		<-errs
		if err := other("me"); !errors.Is(err, countmill.ErrConflict) {
			t.Errorf("one copy pending: got %v, want ErrConflict", err)
		}
		if err := other("you"); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("another principal: got %v, want to be admitted", err)
		}
		cancelSecond()
		<-errs
		if err := other("me"); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("all withdrawn: got %v, want to be admitted", err)
		}
		must(t, errOf(p.PublishKeyed(ctx, "me", "k", inc("a", 1))))
		must(t, errOf(p.PublishKeyed(ctx, "me", "k", inc("a", 1)))) // a repeat is sent again
		gone, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		if _, err := p.PublishKeyed(gone, "me", "k", inc("a", 1)); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("withdrawn repeat: got %v, want ErrUnavailable", err)
		}
		if err := other("me"); !errors.Is(err, countmill.ErrConflict) {
			t.Errorf("flushed: got %v, want ErrConflict", err)
		}
		closeNow(t, p)
		bus.wantTotals(map[string]int64{"a": 1})
		if len(bus.batches) != 2 {
			t.Errorf("got %d batches, want the repeat to be sent", len(bus.batches))
		}
	})
}

func TestInvalidRequestNamesTheIncrement(t *testing.T) {
	t.Parallel()
	bus := newBus(t)
	p := open(t, bus, Config{Linger: -1})
	twice := []countmill.Increment{{Counter: "a", Delta: 1, ID: "x"}, {Counter: "a", Delta: 2, ID: "x"}}
	for name, err := range map[string]error{
		"delta 0":       errOf(p.Publish(ctx, inc("a", 1), inc("b", 0))),
		"keyed delta 0": errOf(p.PublishKeyed(ctx, "", "k", inc("a", 1), inc("b", 0))),
		"id twice":      errOf(p.Publish(ctx, twice...)),
		"keyed twice":   errOf(p.PublishKeyed(ctx, "", "k", twice...)),
	} {
		var field *countmill.FieldError
		if !errors.Is(err, countmill.ErrInvalid) || !errors.As(err, &field) || field.Index == nil || *field.Index != 1 {
			t.Errorf("%s: got %v, want a FieldError at 1", name, err)
		}
	}
	handle, err := p.Counter("a")
	must(t, err)
	_, unnamed := p.Counter("")
	_, group := p.Counter("=site:a")
	for what, err := range map[string]error{
		"no name": p.Add("", 1), "delta 0": p.Add("a", 0), "a large delta": p.Add("a", countmill.MaxDelta+1), "no key": errOf(p.PublishKeyed(ctx, "", "", inc("a", 1))),
		"a handle without a name": unnamed, "a handle, delta 0": handle.Add(0),
		"a group": p.Add("=site:a", 1), "a handle of a group": group, "a group in a request": errOf(p.Publish(ctx, inc("=site:a", 1), inc("a", 1))),
	} {
		if field, ok := errors.AsType[*countmill.FieldError](err); !ok || !errors.Is(err, countmill.ErrInvalid) || strings.Contains(what, "group") && field.Field != "counter" {
			t.Errorf("%s: got %v, want a FieldError", what, err)
		}
	}
	closeNow(t, p)
	bus.wantTotals(map[string]int64{})
}

// How old an increment may be can change while the publisher runs.
func TestTheWindowIsAskedForWithEachRequest(t *testing.T) {
	t.Parallel()
	bus := newBus(t)
	window := time.Hour
	p := open(t, bus, Config{Linger: -1, DedupWindow: func() time.Duration { return window }})
	old := countmill.Increment{Counter: "a", Delta: 1, ID: "x", Time: time.Now().Add(-2 * time.Hour)}
	if _, err := p.Publish(ctx, old); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("two hours old with a window of one: got %v, want ErrInvalid", err)
	}
	window = 3 * time.Hour
	must(t, errOf(p.Publish(ctx, old)))
	closeNow(t, p)
	bus.wantTotals(map[string]int64{"a": 1})
}

func TestOverloadCountsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := make(chan struct{})
		bus.blockUntil(release)
		p := open(t, bus, Config{Linger: -1, MaxInFlight: 1, MaxEntries: 10})
		must(t, p.Add("first", 1))
		synctest.Wait() // it is under way
		want := map[string]int64{"first": 1}
		for i := range 10 {
			must(t, p.Add(fmt.Sprint(i), 1))
			want[fmt.Sprint(i)]++
		}
		for _, err := range []error{p.Add("one more", 1), errOf(p.Publish(ctx, inc("1", 1))), errOf(p.PublishKeyed(ctx, "", "k", inc("1", 1)))} {
			if !errors.Is(err, countmill.ErrOverloaded) {
				t.Errorf("full: got %v, want ErrOverloaded", err)
			}
		}
		for i := range 10 {
			must(t, p.Add(fmt.Sprint(i), 1)) // these are there already
			want[fmt.Sprint(i)]++
		}
		if s := p.Stats(); s.OpenEntries != 10 || s.Refused != 3 {
			t.Errorf("stats: %+v", s)
		}
		close(release)
		closeNow(t, p)
		bus.wantTotals(want)
	})
}

// A sum beyond 2^62 begins an entry of its own, which needs room as any other, also if small
// increments in other words bring it there.
func TestSumsThatStartAnEntryNeedRoom(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"entries": {MaxEntries: 1}, "bytes": {MaxBytes: len("a") + entryCost + 100}} {
		synctest.Test(t, func(t *testing.T) {
			bus := newBus(t)
			release := make(chan struct{})
			bus.blockUntil(release)
			cfg.Linger, cfg.MaxInFlight = -1, 1
			p := open(t, bus, cfg)
			must(t, p.Add("first", 1))
			synctest.Wait() // it is under way
			want := map[string]int64{"first": 1}
			for _, delta := range slices.Concat(slices.Repeat([]int64{countmill.MaxDelta}, 511), []int64{300, 300}) {
				must(t, p.Add("a", delta))
				want["a"] += delta
			}
			if err := p.Add("a", countmill.MaxDelta); !errors.Is(err, countmill.ErrOverloaded) {
				t.Errorf("%s: no room for a second entry: got %v, want ErrOverloaded", name, err)
			}
			must(t, p.Add("a", -1))
			want["a"]--
			if s := p.Stats(); s.OpenEntries != 1 {
				t.Errorf("%s: %d entries open, want 1", name, s.OpenEntries)
			}
			close(release)
			closeNow(t, p)
			bus.wantTotals(want)
		})
	}
}

func TestBusThatClosesIsFinal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		bus.answer = func(int, *message.Message) (bool, error) {
			return true, fmt.Errorf("topic is gone: %w", countmill.ErrClosed)
		}
		p := open(t, bus, Config{}) // with a linger, so that both of b leave together
		_, err := p.Publish(ctx, inc("a", 1))
		if !errors.Is(err, countmill.ErrOutcomeUnknown) || errors.Is(err, countmill.ErrClosed) {
			t.Errorf("Publish: got %v, want ErrOutcomeUnknown only", err)
		}
		if !strings.Contains(err.Error(), "topic is gone") {
			t.Errorf("Publish: got %v, want what the bus said", err)
		}
		must(t, p.Add("b", 1))
		must(t, p.Add("b", 1))
		err = p.Close(ctx)
		if !errors.Is(err, countmill.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "3 increments") || !strings.Contains(err.Error(), "topic is gone") {
			t.Errorf("Close: got %v, want 3 increments of unknown outcome and what the bus said", err)
		}
		if bus.calls != 2 {
			t.Errorf("got %d calls, want no message sent again", bus.calls)
		}
	})
}

func TestCloseDoesNotOutliveItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := make(chan struct{})
		bus.answer = func(int, *message.Message) (bool, error) { <-release; return true, nil } // deaf
		p := open(t, bus, Config{Linger: -1, MaxInFlight: 1})
		errs := make(chan error, 2)
		go func() { errs <- errOf(p.Publish(ctx, inc("a", 1))) }()
		synctest.Wait()
		go func() { errs <- errOf(p.Publish(ctx, inc("a", 1))) }()
		must(t, p.Add("b", 1))
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := p.Close(short)
		if !errors.Is(err, countmill.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "3 increments") {
			t.Errorf("Close: got %v, want 3 increments and the deadline", err)
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, countmill.ErrOutcomeUnknown) && !errors.Is(err, countmill.ErrUnavailable) {
				t.Errorf("Publish: got %v", err)
			}
		}
		for name, err := range map[string]error{"Add": p.Add("b", 1), "Flush": errOf(p.Flush(ctx)), "Close": p.Close(ctx), "Publish": errOf(p.Publish(ctx, inc("a", 1)))} {
			if !errors.Is(err, countmill.ErrClosed) {
				t.Errorf("%s after Close: got %v, want ErrClosed", name, err)
			}
		}
		close(release)
		synctest.Wait()
		if bus.calls != 1 {
			t.Errorf("got %d calls, want none after Close has given up", bus.calls)
		}
	})
}

func TestRequestsShareMessagesAndHeadsComeFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{})
		errs := make(chan error, 50)
		want := map[string]int64{"zero": 0, "id": 1}
		var many []countmill.Increment
		for i := range 100 {
			many = append(many, inc(fmt.Sprint("c", i), 1))
			want[fmt.Sprint("c", i)] += 50
		}
		many = append(many, countmill.Increment{Counter: "id", Delta: 1, ID: "e"})
		for i := range 50 {
			go func() { errs <- errOf(p.PublishKeyed(ctx, "", fmt.Sprint(i), many...)) }()
		}
		must(t, errOf(p.Publish(ctx, inc("zero", 1), inc("zero", -1))))
		for range 50 {
			must(t, <-errs)
		}
		delete(want, "zero")
		closeNow(t, p)
		bus.wantTotals(want)
		if bus.messages != 1 {
			t.Errorf("got %d messages, want the callers to share one", bus.messages)
		}
		if n := len(bus.batches[0].Parts); n != 50*6 {
			t.Errorf("got %d parts, want 300", n)
		}
	})
}

func TestEntriesAreInHashOrder(t *testing.T) {
	t.Parallel()
	bus := newBus(t)
	p := open(t, bus, Config{Linger: time.Hour})
	for i := range 5000 {
		must(t, p.Add(fmt.Sprint(i), 1))
	}
	closeNow(t, p)
	var entries []wire.Entry
	for _, b := range bus.batches {
		for _, part := range b.Parts {
			entries = append(entries, part.Entries...)
		}
	}
	last := uint64(0)
	for _, e := range entries {
		if h := wire.Order(e.Counter); h < last {
			t.Fatal("entries are not in hash order")
		} else {
			last = h
		}
	}
	if len(entries) != 5000 {
		t.Errorf("got %d entries, want 5000", len(entries))
	}
}

// errOf is the error of a call whose Sent the test does not look at.
func errOf(_ Sent, err error) error { return err }
