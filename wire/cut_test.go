package wire

import (
	"cmp"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill"
)

// Two parts with one id would count as one part that was delivered twice.
func TestCutAnonymousKeepsEveryEntryUnderRandomIDs(t *testing.T) {
	t.Parallel()
	want := make([]Entry, 2*MaxEntries+1)
	for i := range want {
		want[i] = Entry{fmt.Sprint("c", i), int64(i + 1)}
	}
	var got []Entry
	seen := map[PartID]bool{{}: true}
	for range 2 { // the same entries twice: the ids do not depend on them
		got = nil
		for i, p := range CutAnonymous(crand.Reader, want) {
			if seen[p.ID] {
				t.Errorf("part %d has id %s, which is zero or another part's", i, p.ID)
			}
			seen[p.ID] = true
			got = append(got, p.Entries...)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("entries of the parts differ (-want +got):\n%s", diff)
	}
}

func TestCutMessage(t *testing.T) {
	t.Parallel()
	identified := countmill.Increment{Counter: "b", Delta: 3, ID: "x", Time: epoch}
	incs := []countmill.Increment{{Counter: "a", Delta: 1}, identified, {Counter: "a", Delta: -2, Time: epoch}, {Counter: "a", Delta: 1}}
	got, err := CutMessage("topic", "7", epoch.Add(999), incs)
	if err != nil {
		t.Fatal(err)
	}
	want := &Batch{Time: epoch, Parts: []Part{
		{ID: MessageID("topic", "7", 0), Kind: Foreign, Entries: []Entry{{"a", 2}}},
		{ID: MessageID("topic", "7", 1), Kind: Foreign, Minute: MinuteOf(epoch), Entries: []Entry{{"a", -2}}},
		CutIdentified(identified),
	}}
	if diff := gocmp.Diff(want, got, sameBatch); diff != "" {
		t.Errorf("batch differs (-want +got):\n%s", diff)
	}
	for name, incs := range map[string][]countmill.Increment{
		"sum beyond 2^62":  sumTo(1, 1),
		"one id, two ways": {{Counter: "a", Delta: 1, ID: "x"}, {Counter: "a", Delta: 2, ID: "x"}},
	} {
		if _, err := CutMessage("topic", "7", epoch, incs); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got error %v, want ErrInvalid", name, err)
		}
	}
}

// sumTo makes valid increments that sum to sign * (2^62 + more).
func sumTo(sign, more int64) []countmill.Increment {
	const n = MaxSum / (countmill.MaxDelta + 1)
	incs := []countmill.Increment{{Counter: "a", Delta: sign * (n + more)}}
	for range n {
		incs = append(incs, countmill.Increment{Counter: "a", Delta: sign * countmill.MaxDelta})
	}
	return incs
}

func TestCutRequestTakesSumsUpToTheLimit(t *testing.T) {
	t.Parallel()
	for _, sign := range []int64{1, -1} {
		parts, err := CutRequest("", "k", sumTo(sign, 0))
		if err != nil || parts[0].Entries[0].Delta != sign*MaxSum {
			t.Errorf("sum of %d: got %v, %v", sign*MaxSum, parts, err)
		}
		if parts, err := CutRequest("", "k", sumTo(sign, 1)); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("sum of %d: got %v, error %v, want ErrInvalid", sign*MaxSum+sign, parts, err)
		}
	}
	twice := []countmill.Increment{{Counter: "a", Delta: 1, ID: "x"}, {Counter: "a", Delta: 2, ID: "x"}}
	if parts, err := CutRequest("", "k", twice); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("one id with two deltas: got %v, error %v, want ErrInvalid", parts, err)
	}
}

// Sums are those of a plain map, sorted by Order and name: in small and large requests, of counters whose Orders are equal, and
// of several minutes.
func TestCutRequestSums(t *testing.T) {
	t.Parallel()
	one, other := oneOrder(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		incs := make([]countmill.Increment, 1+r.IntN(1000))
		names, minutes := 1+r.IntN(2*len(incs)), 1+r.IntN(3)
		for i := range incs {
			incs[i] = countmill.Increment{Counter: fmt.Sprintf("a:b:%d", r.IntN(names)), Delta: r.Int64N(5) - 2, Time: epoch.Add(-time.Duration(r.IntN(minutes)) * time.Minute)}
			if r.IntN(10) == 0 {
				incs[i].Counter = []string{one, other}[r.IntN(2)]
			}
		}
		newest := MinuteOf(newestOf(incs))
		want, sums := make(map[Minute][]Entry), make(map[Minute]map[string]int64)
		for _, inc := range incs {
			m := MinuteOf(inc.Time)
			if sums[m] == nil {
				sums[m] = make(map[string]int64)
			}
			sums[m][inc.Counter] += inc.Delta
		}
		for m, of := range sums {
			for name, sum := range of {
				if sum != 0 {
					want[m] = append(want[m], Entry{name, sum})
				}
			}
			slices.SortFunc(want[m], func(a, b Entry) int {
				return cmp.Or(cmp.Compare(Order(a.Counter), Order(b.Counter)), cmp.Compare(a.Counter, b.Counter))
			})
		}
		parts, err := CutRequest("", "k", incs)
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[Minute][]Entry)
		for _, p := range parts {
			if p.Minute == 0 {
				p.Minute = newest
			}
			got[p.Minute] = append(got[p.Minute], p.Entries...)
		}
		if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("entries of %d increments differ (-want +got):\n%s", len(incs), diff)
		}
	}
}

// oneOrder returns two counters of one Order.
func oneOrder(t *testing.T) (one, other string) {
	seen := make(map[uint64]string)
	for i := range 1_000_000 {
		name := fmt.Sprintf("page:views:%d", i)
		if same, ok := seen[Order(name)]; ok {
			return same, name
		}
		seen[Order(name)] = name
	}
	t.Fatal("no two of a million counters have one Order")
	return "", ""
}

// The error names the first increment in the request that makes a sum too large, not the first counter or minute in the order.
func TestCutRequestNamesTheIncrementThatIsTooMuch(t *testing.T) {
	t.Parallel()
	for _, names := range []string{"ab", "ba", "aa"} {
		for _, minutes := range [][2]int{{0, 0}, {0, -1}, {-1, 0}} {
			if minutes[0] == minutes[1] && names == "aa" {
				continue
			}
			var incs []countmill.Increment
			for _, inc := range sumTo(1, 1) {
				for i, m := range minutes {
					inc.Counter, inc.Time = names[i:i+1], epoch.Add(time.Duration(m)*time.Minute)
					incs = append(incs, inc)
				}
			}
			_, err := CutRequest("", "k", append(incs, countmill.Increment{Counter: "c", Delta: 1, Time: epoch.Add(time.Minute)}))
			var ferr *countmill.FieldError
			if !errors.As(err, &ferr) || ferr.Index == nil || *ferr.Index != len(incs)-2 || !strings.Contains(ferr.Problem, strconv.Quote(names[:1])) {
				t.Errorf("counters %s of minutes %v: got error %v, want one of increment %d", names, minutes, err, len(incs)-2)
			}
		}
	}
}

func BenchmarkCutRequest(b *testing.B) {
	for _, n := range []int{100, 50_000} {
		r := rand.New(rand.NewPCG(1, 2))
		zipf := rand.NewZipf(r, 1.1, 1, 1e6-1)
		for load, next := range map[string]func() uint64{"uniform": func() uint64 { return r.Uint64N(1e6) }, "zipf": zipf.Uint64} {
			incs := make([]countmill.Increment, n)
			for i := range incs {
				incs[i] = countmill.Increment{Counter: fmt.Sprintf("page:%07d:views", next()), Delta: 1}
			}
			b.Run(fmt.Sprintf("%s/%d", load, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := CutRequest("p", "k", incs); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/increment")
			})
		}
	}
}

// The order is frozen too: the request's fingerprint depends on it.
func TestCutRequestOrdersIdentifiedByCounterThenID(t *testing.T) {
	t.Parallel()
	parts, err := CutRequest("", "k", []countmill.Increment{
		{Counter: "b", Delta: 1, ID: "1"}, {Counter: "b", Delta: 1, ID: "2"},
		{Counter: "a", Delta: 1, ID: "3"}, {Counter: "a", Delta: 1, ID: "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got, want []PartID
	for _, p := range parts {
		got = append(got, p.ID)
	}
	want = append(want, KeyID("", "k", 0)) // the head, though it has no entries
	for _, inc := range []countmill.Increment{{Counter: "a", ID: "2"}, {Counter: "a", ID: "3"}, {Counter: "b", ID: "1"}, {Counter: "b", ID: "2"}} {
		want = append(want, CutIdentified(inc).ID)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("ids differ (-want +got):\n%s", diff)
	}
}
