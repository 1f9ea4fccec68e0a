package admin_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A fakeStore keeps dead letters of any size, and decisions.
type fakeStore struct {
	dead      map[string]store.DeadLetter
	decisions map[wire.PartID]store.Marker
	most      int // dead letters in one answer
	err       error
	window    time.Duration
}

func newStore(all ...store.DeadLetter) *fakeStore {
	f := &fakeStore{dead: map[string]store.DeadLetter{}, decisions: map[wire.PartID]store.Marker{}, window: countmill.DefaultDedupWindow}
	for _, d := range all {
		f.dead[d.Key] = d
	}
	return f
}

// asked returns the replay request of a dead letter; zero if there is none.
func (f *fakeStore) asked(key string) store.DeadLetter { return f.dead[store.ReplayKey(key)] }

func (f *fakeStore) decide(key string, decision store.Decision) {
	id := wire.DeadLetterID(key)
	f.decisions[id] = store.Marker{ID: id, Fingerprint: wire.Fingerprint(decision)}
}

func (f *fakeStore) Check(context.Context) (store.Checked, error) {
	return store.Checked{Settings: store.Settings{Window: f.window}.At(time.Now())}, f.err
}

func (f *fakeStore) ListDeadLetters(_ context.Context, after string, limit int) (page []store.DeadLetter, err error) {
	for _, key := range slices.Sorted(maps.Keys(f.dead)) {
		if key > after && len(page) < limit {
			page = append(page, f.dead[key])
		}
	}
	f.most = max(f.most, len(page))
	return page, f.err
}

func (f *fakeStore) GetDeadLetters(_ context.Context, keys []string) (found []store.DeadLetter, err error) {
	for _, key := range keys {
		if d, ok := f.dead[key]; ok {
			found = append(found, d)
		}
	}
	f.most = max(f.most, len(found))
	return found, f.err
}

func (f *fakeStore) PutDeadLetters(_ context.Context, all []store.DeadLetter) error {
	for _, d := range all {
		f.dead[d.Key] = d
	}
	return f.err
}

func (f *fakeStore) DeleteDeadLetters(_ context.Context, keys []string) error {
	for _, key := range keys {
		delete(f.dead, key)
	}
	return f.err
}

func (f *fakeStore) Limits() store.Limits { return store.Limits{} }

func (f *fakeStore) Fold(_ context.Context, c *store.Commit) (store.CommitResult, error) {
	for _, m := range c.Markers {
		if _, ok := f.decisions[m.ID]; ok {
			return store.CommitResult{}, store.ErrMarkerExists
		}
		f.decisions[m.ID] = m
	}
	return store.CommitResult{}, f.err
}

func (f *fakeStore) Applied(_ context.Context, ids []wire.PartID) (found []store.Marker, err error) {
	for _, id := range ids {
		if m, ok := f.decisions[id]; ok {
			found = append(found, m)
		}
	}
	return found, f.err
}

func entry(counter string, delta int64) wire.Entry { return wire.Entry{Counter: counter, Delta: delta} }

func anonymous(entries ...wire.Entry) wire.Part { return wire.CutAnonymous(rand.Reader, entries)[0] }

func encode(at time.Time, parts ...wire.Part) []byte {
	return wire.Append(nil, &wire.Batch{Time: at, Parts: parts})
}

func decode(t *testing.T, payload []byte) *wire.Batch {
	t.Helper()
	b, err := wire.Decode(payload)
	if err != nil {
		t.Fatalf("what is asked for cannot be read: %v", err)
	}
	return b
}

// replay asks for the letter k.
func replay(t *testing.T, f *fakeStore, asNew bool) admin.DeadLetterOutcome {
	t.Helper()
	done, err := admin.NewDeadLetters(f).Replay(t.Context(), []string{"k"}, asNew)
	if err != nil || len(done) != 1 {
		t.Fatalf("got %v, %v; want one outcome", done, err)
	}
	return done[0]
}

func TestWhatAReplayAsksFor(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Microsecond)
	old := now.Add(-200 * time.Hour)
	part := anonymous(entry("a", 1), entry("b", 2))
	later := part
	later.Time = now.Add(25 * time.Hour)
	cancelled, err := wire.CutRequest("", "key", []countmill.Increment{{Counter: "a", Delta: 1}, {Counter: "a", Delta: -1}})
	if err != nil {
		t.Fatal(err)
	}
	newer := encode(now, part)
	newer[1] = 9
	for name, test := range map[string]struct {
		letter store.DeadLetter
		// The outcome without and with as_new: the same bytes, a batch of now, or a refusal.
		plain, asNew string
	}{
		"a batch":                     {store.DeadLetter{Payload: encode(now, part), Time: now}, "as it is", "as it is"},
		"maybe counted":               {store.DeadLetter{Payload: encode(now, part), Time: now, Maybe: true}, "as it is", "as it is"},
		"beyond the window":           {store.DeadLetter{Payload: encode(old, part), Time: old, Maybe: true}, "beyond the deduplication window of 192h0m0s", "new, twice"},
		"that, and certainly not":     {store.DeadLetter{Payload: encode(old, part), Time: old}, "beyond the deduplication window of 192h0m0s", "new, twice"},
		"that, and asked for before":  {store.DeadLetter{Payload: encode(old, part), Time: old}, "beyond the deduplication window of 192h0m0s", "new, twice"},
		"an id that is taken":         {store.DeadLetter{Payload: encode(now, part), Time: now, Reason: store.ReasonIDReused, Source: part.ID.String()}, "its id was counted with other increments; it can only be counted as new", "new id"},
		"that, and asked for":         {store.DeadLetter{Payload: encode(now, part), Time: now, Reason: store.ReasonIDReused, Source: part.ID.String()}, "its id was counted with other increments", "new id"},
		"far ahead":                   {store.DeadLetter{Payload: encode(now.Add(25*time.Hour), part), Time: now.Add(25 * time.Hour)}, "its time is more than 24h0m0s ahead; it can only", "new"},
		"far ahead, not on the bus":   {store.DeadLetter{Payload: encode(now.Add(25*time.Hour), part), Time: now}, "its time is more than 24h0m0s ahead; it can only", "new"},
		"a part that is far ahead":    {store.DeadLetter{Payload: encode(now, later), Time: now}, "its time is more than 24h0m0s ahead; it can only", "new"},
		"no increments":               {store.DeadLetter{Payload: encode(old, cancelled...), Time: old}, "beyond the deduplication window of 192h0m0s", "it holds no increments"},
		"a little ahead":              {store.DeadLetter{Payload: encode(now.Add(23*time.Hour), part), Time: now}, "as it is", "as it is"},
		"newer":                       {store.DeadLetter{Payload: newer, Time: now}, "ask a server of that version", "ask a server of that version"},
		"garbage":                     {store.DeadLetter{Payload: []byte("garbage"), Time: now}, "batch: ", "batch: "},
		"discarded before":            {store.DeadLetter{Payload: encode(now, part), Time: now}, "it was discarded", "it was discarded"},
		"nothing":                     {store.DeadLetter{Time: now}, "batch: ", "batch: "},
		"JSON":                        {store.DeadLetter{Payload: []byte(`[{"counter":"a"},{"counter":"b","delta":2}]`), Time: now, Maybe: true}, "the id that the message had on the bus is lost", "lost, twice"},
		"JSON with ids":               {store.DeadLetter{Payload: []byte(` {"counter":"a","id":"x"}`), Time: now, Maybe: true}, "ids of increments", "ids of increments"},
		"JSON that is bad":            {store.DeadLetter{Payload: []byte(`{"counter":"a","delta":0}`), Time: now}, "delta is 0", "delta is 0"},
		"JSON that cancels out":       {store.DeadLetter{Payload: []byte(`[{"counter":"a"},{"counter":"a","delta":-1}]`), Time: now}, "cancel out", "cancel out"},
		"JSON before the bus had ids": {store.DeadLetter{Payload: []byte(`[{"counter":"a"},{"counter":"b","delta":2}]`), Time: now}, "is lost; it can only be counted as new", "lost"},
	} {
		for asNew, want := range map[bool]string{false: test.plain, true: test.asNew} {
			test.letter.Key = "k"
			f := newStore(test.letter)
			if strings.HasPrefix(name, "that, and asked for") {
				f.dead[store.ReplayKey("k")] = store.DeadLetter{Key: store.ReplayKey("k")}
			}
			if name == "discarded before" {
				f.decide("k", store.DecisionDiscarded)
			}
			o := replay(t, f, asNew)
			got := f.asked("k")
			switch want {
			case "as it is":
				if o != (admin.DeadLetterOutcome{Key: "k", Result: admin.ResultAsked}) || string(got.Payload) != string(test.letter.Payload) || !got.Time.Equal(test.letter.Time) || got.Maybe != test.letter.Maybe {
					t.Errorf("%s, as new %t: %+v and %+v asked, want the letter as it is", name, asNew, o, got)
				}
			case "ids of increments":
				b := decode(t, got.Payload)
				if len(b.Parts) != 1 || b.Parts[0].ID != wire.IncrementID("a", "x") || o.New || !got.Time.Equal(test.letter.Time) {
					t.Errorf("%s, as new %t: %+v and %+v asked, want the increment's id", name, asNew, o, b)
				}
			case "new", "new, twice", "new id", "lost", "lost, twice":
				if !o.New || o.Twice != strings.HasSuffix(want, "twice") || o.Result != admin.ResultAsked || got.Maybe != test.letter.Maybe {
					t.Errorf("%s, as new %t: %+v, want %s", name, asNew, o, want)
				}
				checkRenewed(t, name, got, part, strings.HasPrefix(want, "new") && want != "new id")
			default:
				if o.Result != admin.ResultRefused || !strings.Contains(o.Why, want) || got.Payload != nil {
					t.Errorf("%s, as new %t: %+v, %d asked; want a refusal with %q", name, asNew, o, len(f.dead)-1, want)
				}
			}
		}
	}
}

// checkRenewed compares the request with one of a and two of b, as of now, and its ids with
// the old ones.
func checkRenewed(t *testing.T, name string, got store.DeadLetter, old wire.Part, kept bool) {
	t.Helper()
	b := decode(t, got.Payload)
	sums := map[string]int64{}
	for _, p := range b.Parts {
		if (p.ID == old.ID) != kept {
			t.Errorf("%s: the id is %s, and was %s: want it kept: %t", name, p.ID, old.ID, kept)
		}
		for _, e := range p.Entries {
			sums[e.Counter] += e.Delta
		}
		if age := time.Since(p.Time); age < 0 || age > time.Minute {
			t.Errorf("%s: a part is of %s, want now", name, p.Time)
		}
	}
	if diff := cmp.Diff(map[string]int64{"a": 1, "b": 2}, sums); diff != "" {
		t.Errorf("%s: sums (-want +got):\n%s", name, diff)
	}
	if age := time.Since(b.Time); age < 0 || age > time.Minute || !got.Time.Truncate(time.Microsecond).Equal(b.Time) {
		t.Errorf("%s: time %s, letter's time %s, want now", name, b.Time, got.Time)
	}
}

// Under an id that is taken a part counts under another one: the same whenever that is asked,
// and another if one id was used with other deltas.
func TestNewIDsAreTheSameEachTime(t *testing.T) {
	t.Parallel()
	b := anonymous(entry("b", 1))
	ask := func(at time.Time) wire.Part {
		f := newStore(store.DeadLetter{Key: "k", Time: at, Reason: store.ReasonIDReused, Source: b.ID.String(), Payload: encode(at, b)})
		replay(t, f, true)
		return decode(t, f.asked("k").Payload).Parts[0]
	}
	now := time.Now().Truncate(time.Microsecond)
	first, second := ask(now), ask(now.Add(-time.Hour))
	if first.ID != second.ID || first.ID == b.ID {
		t.Errorf("ids %v and %v, want the same, and not %s", first.ID, second.ID, b.ID)
	}
	if !second.Time.Equal(now.Add(-time.Hour)) {
		t.Errorf("it is of %s, want the time it had: a marker outlives that", second.Time)
	}
	b.Entries = []wire.Entry{entry("b", 5)}
	if third := ask(now); third.ID == second.ID {
		t.Error("one id with two deltas has one new id")
	}
}

// An increment with an id in a request whose key was taken has its own id still: it may have
// been counted under it, from another request.
func TestAnIDBesideAKeyThatIsTakenIsKept(t *testing.T) {
	t.Parallel()
	parts, err := wire.CutRequest("", "key", []countmill.Increment{{Counter: "a", Delta: 1}, {Counter: "b", Delta: 2, ID: "x"}})
	if err != nil || len(parts) != 2 {
		t.Fatal(len(parts), err)
	}
	for taken, want := range map[wire.PartID][]wire.PartID{
		parts[0].ID: {wire.RenewedOf(parts[0].ID, parts[0].Fingerprint()), wire.IncrementID("b", "x")},
		parts[1].ID: {wire.RenewedOf(parts[1].ID, parts[1].Fingerprint())},
	} {
		f := newStore(store.DeadLetter{Key: "k", Source: taken.String(), Reason: store.ReasonIDReused, Time: time.Now(), Payload: encode(time.Now(), parts...)})
		replay(t, f, true)
		var got []wire.PartID
		for _, p := range decode(t, f.asked("k").Payload).Parts {
			got = append(got, p.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ids (-want +got):\n%s", diff)
		}
	}
}

// A letter about a part that follows a head begins with a copy of the head.
func TestTheCopyOfAHeadIsNotCountedAsNew(t *testing.T) {
	t.Parallel()
	var incs []countmill.Increment
	for i := range 30 {
		incs = append(incs, countmill.Increment{Counter: fmt.Sprint("c", i), Delta: 1})
	}
	parts, err := wire.CutRequest("", "key", incs)
	if err != nil || len(parts) != 2 {
		t.Fatal(len(parts), err)
	}
	for source, want := range map[string]int{parts[1].ID.String(): 6, parts[0].ID.String(): 30, "message": 30} {
		for _, taken := range []bool{false, true} {
			if taken && source == "message" {
				continue // no letter about a message says that
			}
			f := newStore(store.DeadLetter{Key: "k", Source: source, Reason: map[bool]string{true: store.ReasonIDReused}[taken], Payload: encode(time.Now(), parts...)})
			replay(t, f, true)
			if got := decode(t, f.asked("k").Payload).Entries(); got != want {
				t.Errorf("source %s, taken %t: %d entries, want %d", source, taken, got, want)
			}
		}
	}
}

func TestGoneAndDiscarded(t *testing.T) {
	t.Parallel()
	var all []store.DeadLetter
	var keys []string
	for i := range 23 {
		keys = append(keys, fmt.Sprintf("%02d", i))
		all = append(all, store.DeadLetter{Key: keys[i], Time: time.Now(), Payload: encode(time.Now(), anonymous(entry("a", 1)))})
	}
	f := newStore(all...)
	l := admin.NewDeadLetters(f)
	if done, err := l.Replay(t.Context(), []string{"07", "99", "08"}, false); err != nil || done[0].Result != admin.ResultAsked || done[1].Result != admin.ResultGone || done[2].Result != admin.ResultAsked {
		t.Errorf("replay: %v, %v; want asked, gone, asked", done, err)
	}
	for _, want := range []string{admin.ResultDiscarded, admin.ResultGone} {
		done, err := l.Discard(t.Context(), keys[:22])
		if err != nil || len(done) != 22 {
			t.Fatal(done, err)
		}
		for i, o := range done {
			if o != (admin.DeadLetterOutcome{Key: keys[i], Result: want}) {
				t.Errorf("%d: %+v, want %s", i, o, want)
			}
		}
	}
	f.decide(keys[22], store.DecisionCounted)
	if done, err := l.Discard(t.Context(), keys[22:]); err != nil || done[0].Result != admin.ResultRemoved || !strings.Contains(done[0].Why, "may still be") {
		t.Errorf("a letter that an aggregator counts: got %+v, %v; want it removed, and why", done, err)
	}
	if len(f.dead) != 0 {
		t.Errorf("%d dead letters and replay requests are left, want none", len(f.dead))
	}
	if f.most > 5 {
		t.Errorf("%d letters in memory at once, want at most 5", f.most)
	}
}

func TestPagesOfDeadLetters(t *testing.T) {
	t.Parallel()
	f := newStore()
	for i := range 23 {
		key := fmt.Sprintf("%02d", i)
		f.dead[key] = store.DeadLetter{Key: key, Payload: make([]byte, i)}
	}
	f.dead[store.ReplayKey("03")] = store.DeadLetter{Key: store.ReplayKey("03")} // no dead letter itself
	l := admin.NewDeadLetters(f)
	for key, want := range map[string][2]bool{"03": {true, true}, store.ReplayKey("03"): {}, "04": {true, false}, "99": {}} {
		if d, _, found, err := l.Show(t.Context(), key); err != nil || [2]bool{found, d.Asked} != want {
			t.Errorf("%s: found %t, asked %t, %v; want %v", key, found, d.Asked, err, want)
		}
	}
	f.most = 0
	for _, limit := range []int{1, 4, 5, 6, 22, 23, 24, 1000} {
		n, after := 0, ""
		for {
			p, err := l.List(t.Context(), after, limit)
			if err != nil || len(p.DeadLetters) > limit || len(p.DeadLetters) == 0 {
				t.Fatalf("limit %d: %d letters, %v", limit, len(p.DeadLetters), err)
			}
			for i, d := range p.DeadLetters {
				if d.Key != fmt.Sprintf("%02d", n) || p.Bytes[i] != n || d.Payload != nil || d.Asked != (n == 3) {
					t.Errorf("limit %d: letter %d is %+v of %d bytes", limit, n, d, p.Bytes[i])
				}
				n++
			}
			if after = p.Next; after == "" {
				break
			}
		}
		if n != 23 {
			t.Errorf("limit %d: %d letters, want 23", limit, n)
		}
	}
	if f.most > 5 {
		t.Errorf("%d letters in memory at once, want at most 5", f.most)
	}
}

// Dead letters may have 10 MB each.
func TestAPageOfLargeDeadLettersEndsEarly(t *testing.T) {
	t.Parallel()
	f := newStore()
	large := make([]byte, 10_000_000)
	for i := range 12 {
		f.dead[fmt.Sprint(10+i)] = store.DeadLetter{Key: fmt.Sprint(10 + i), Payload: large}
	}
	l := admin.NewDeadLetters(f)
	n := 0
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		p, err := l.List(t.Context(), after, 1000)
		if err != nil || len(p.DeadLetters) == 0 || len(p.DeadLetters) > 4 {
			t.Fatalf("a page of %d letters, %v; want 1 to 4", len(p.DeadLetters), err)
		}
		n, after = n+len(p.DeadLetters), p.Next
	}
	if n != 12 {
		t.Errorf("%d letters, want 12", n)
	}
}

func TestDeadLettersOfAStoreThatIsUnavailable(t *testing.T) {
	t.Parallel()
	f := newStore(store.DeadLetter{Key: "k", Payload: encode(time.Now(), anonymous(entry("a", 1)))})
	f.err = errors.New("secret")
	l := admin.NewDeadLetters(f)
	_, list := l.List(t.Context(), "", 1)
	_, _, _, show := l.Show(t.Context(), "k")
	_, replay := l.Replay(t.Context(), []string{"k"}, false)
	_, discard := l.Discard(t.Context(), []string{"k"})
	for name, err := range map[string]error{"list": list, "show": show, "replay": replay, "discard": discard} {
		if !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", name, err)
		}
	}
}

// failing fails deletions of dead letters, and puts after some.
type failing struct {
	*fakeStore
	after int
	err   error
}

func (f *failing) PutDeadLetters(ctx context.Context, all []store.DeadLetter) error {
	if f.after--; f.after < 0 {
		return f.err
	}
	return f.fakeStore.PutDeadLetters(ctx, all)
}

func (f *failing) DeleteDeadLetters(context.Context, []string) error { return f.err }

// An error says that nothing was done only where that is certain.
func TestDeadLettersMaybeChanged(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("secret: %w", store.ErrNotApplied)
	for name, c := range map[string]struct {
		after   int
		err     error
		discard bool
		want    error
	}{
		"nothing was asked":   {0, refused, false, countmill.ErrUnavailable},
		"maybe asked":         {0, errors.New("secret"), false, countmill.ErrOutcomeUnknown},
		"the first was asked": {1, refused, false, countmill.ErrOutcomeUnknown},
		"decided, not gone":   {0, refused, true, countmill.ErrOutcomeUnknown},
	} {
		j := store.DeadLetter{Key: "j", Time: time.Now(), Payload: encode(time.Now(), anonymous(entry("a", 1)))}
		k := j
		k.Key = "k"
		f := &failing{newStore(j, k), c.after, c.err}
		do := func(keys []string) error {
			_, err := admin.NewDeadLetters(f).Replay(t.Context(), keys, false)
			return err
		}
		if c.discard {
			do = func(keys []string) error { _, err := admin.NewDeadLetters(f).Discard(t.Context(), keys); return err }
		}
		err := do([]string{"j", "k"})
		for _, kind := range []error{countmill.ErrUnavailable, countmill.ErrOutcomeUnknown} {
			if errors.Is(err, kind) != (kind == c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		}
	}
}
