package sequence_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/sequence"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

var (
	schedules = flag.Int("schedules", 0, "schedules of TestModel; 0 for a few")
	firstSeed = flag.Uint64("seed", 0, "of the first schedule; 0 for a fresh one")
)

// Processes give values of few sequences to many callers. The store fails in every way that its contract
// allows, answers get lost, and processes are killed. The callers repeat requests with their ids. Their
// histories are linearizable: a sequence is one row, each transaction takes values from its head, and an id
// takes values once.
func TestModel(t *testing.T) {
	t.Parallel()
	n, seed := *schedules, *firstSeed
	if n == 0 {
		n = 150
	}
	if testing.Short() {
		n = min(n, 30)
	}
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	var calls, unknown, kills, undecided int
	for i := range uint64(n) {
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(t, seed+i)
			w.run()
		})
		if err := w.check(); errors.Is(err, errUndecided) {
			undecided++
		} else if err != nil {
			t.Errorf("schedule of seed %d: %v", seed+i, err)
		}
		calls, unknown, kills = calls+len(w.history), unknown+w.unknown, kills+w.kills
		if t.Failed() {
			break
		}
	}
	t.Logf("%d schedules from seed %d: %d calls, %d with an unknown outcome, %d kills, %d undecided", n, seed, calls, unknown, kills, undecided)
	if !t.Failed() && (unknown == 0 || kills == 0 || undecided > max(n/50, 1)) {
		t.Error("the schedules had too few faults, or their check too little time")
	}
}

// A world is one schedule.
type world struct {
	t     *testing.T
	store *fakestore.Store
	start time.Time

	mu      sync.Mutex
	random  *rand.Rand
	procs   []*process
	old     []countmill.NextRequest // with ids, to be repeated
	history []porcupine.Operation
	unknown int
	kills   int
}

// A process is an Issuer that can be killed. A killed one answers nobody, and its calls of the store
// reach the store or not.
type process struct {
	*sequence.Issuer
	mortal
}

type mortal struct {
	*fakestore.Store
	dead atomic.Bool
	died chan struct{}
}

func (m *mortal) NextValues(ctx context.Context, name string, takes []store.Take) ([]store.Given, error) {
	if m.dead.Load() {
		return nil, errors.New("killed before the call")
	}
	given, err := m.Store.NextValues(ctx, name, takes)
	if m.dead.Load() {
		return nil, errors.New("killed before the answer")
	}
	return given, err
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 0)), start: time.Now()}
	w.store = fakestore.New(fakestore.Options{Latency: 3 * time.Millisecond, Errorf: t.Errorf})
	faults := w.draw(3) // a third of the schedules has a healthy store
	w.store.On(fakestore.NextValues, func(int) fakestore.Answer {
		if w.draw(10) >= 4*min(faults, 1)+faults {
			return fakestore.OK
		}
		return []fakestore.Answer{
			fakestore.UnknownApplied, fakestore.UnknownNotApplied, fakestore.ContendedApplied, fakestore.ContendedNotApplied,
			fakestore.SlowApplied, fakestore.SlowNotApplied, fakestore.NotApplied, fakestore.Deployment,
		}[w.draw(8)]
	})
	w.procs = []*process{w.begin(), w.begin()}
	return w
}

// draw returns a random number below n.
func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *world) begin() *process {
	p := &process{mortal: mortal{Store: w.store, died: make(chan struct{})}}
	var err error
	p.Issuer, err = sequence.New(&p.mortal, sequence.Config{Timeout: 2 * time.Second, CallTimeout: 300 * time.Millisecond, Transactions: 1 + w.draw(3)})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// run lets callers work and kills processes meanwhile.
func (w *world) run() {
	var callers sync.WaitGroup
	for caller := range 5 {
		callers.Go(func() {
			for range 6 {
				time.Sleep(time.Duration(w.draw(30)) * time.Millisecond)
				w.call(caller)
			}
		})
	}
	stop := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(50+w.draw(900)) * time.Millisecond):
				w.kill(w.draw(2))
			}
		}
	})
	callers.Wait()
	close(stop)
	killer.Wait()
	w.store.On(fakestore.NextValues, nil)
	for i := range 2 {
		w.close(w.procs[i])
	}
}

func (w *world) kill(i int) {
	fresh := w.begin()
	w.mu.Lock()
	p := w.procs[i]
	w.procs[i] = fresh
	w.kills++
	w.mu.Unlock()
	p.dead.Store(true)
	close(p.died)
	w.close(p)
}

func (w *world) close(p *process) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		w.t.Errorf("Close: %v", err)
	}
}

// request returns a new request, or an old one again.
func (w *world) request() (countmill.NextRequest, *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.procs[w.random.IntN(2)]
	if len(w.old) > 0 && w.random.IntN(3) == 0 {
		return w.old[w.random.IntN(len(w.old))], p
	}
	r := countmill.NextRequest{Sequence: []string{"a", "b"}[w.random.IntN(2)], Count: 1 + w.random.IntN(3)}
	if w.random.IntN(4) > 0 {
		r.ID = fmt.Sprint(len(w.old))
		w.old = append(w.old, r)
	}
	return r, p
}

// call makes a request and records the answer.
func (w *world) call(caller int) {
	r, p := w.request()
	ctx, cancel := context.WithTimeout(context.Background(), []time.Duration{time.Minute, time.Duration(w.draw(200)) * time.Millisecond}[w.draw(2)])
	defer cancel()
	began := time.Now()
	type answer struct {
		values countmill.Values
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		values, err := p.Next(ctx, r)
		answered <- answer{values, err}
	}()
	a := answer{err: countmill.ErrOutcomeUnknown}
	select {
	case <-p.died:
	case a = <-answered:
		if p.dead.Load() {
			a = answer{err: countmill.ErrOutcomeUnknown}
		}
	}
	w.record(caller, r, began, a.values, a.err)
}

func (w *world) record(caller int, r countmill.NextRequest, began time.Time, values countmill.Values, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	op := porcupine.Operation{ClientId: caller, Input: r, Output: values, Call: int64(began.Sub(w.start)), Return: int64(time.Since(w.start))}
	switch {
	case errors.Is(err, countmill.ErrOutcomeUnknown):
		op.Return = math.MaxInt64 // it may be applied at any time
		w.unknown++
	case errors.Is(err, countmill.ErrUnavailable), errors.Is(err, countmill.ErrClosed):
		return // it was not applied, and never will be: the model would not explain its values
	case err != nil:
		w.t.Errorf("%+v: unexpected %v", r, err)
	}
	w.history = append(w.history, op)
}

// A row is the state of a sequence in the model.
type row struct {
	last int64
	ids  map[string]countmill.Values
}

// take is the model of a request. Without an id, and for a new one, it takes the next values.
func (x row) take(r countmill.NextRequest) (row, countmill.Values) {
	if got, ok := x.ids[r.ID]; ok && r.ID != "" {
		return x, got
	}
	v := countmill.Values{First: x.last + 1, Last: x.last + int64(r.Count)}
	ids := maps.Clone(x.ids)
	if r.ID != "" {
		ids[r.ID] = v
	}
	return row{v.Last, ids}, v
}

var rows = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := make(map[string][]porcupine.Operation)
		for _, op := range history {
			name := op.Input.(countmill.NextRequest).Sequence
			of[name] = append(of[name], op)
		}
		for _, part := range of {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{row{ids: map[string]countmill.Values{}}} },
	Step: func(state, input, output any) []any {
		before := state.(row)
		after, v := before.take(input.(countmill.NextRequest))
		switch output.(countmill.Values) {
		case v:
			return []any{after}
		case countmill.Values{}: // unknown: applied, or never
			return []any{before, after}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a.(row).last == b.(row).last && maps.Equal(a.(row).ids, b.(row).ids) },
}

// errUndecided: a history has so many open outcomes that their orders take too long. Its values were
// given once.
var errUndecided = errors.New("the check of the history took over 2 s")

// check reports whether the history is that of rows. It looks for values that were given twice first,
// because that error says more.
func (w *world) check() error {
	type value struct {
		sequence string
		n        int64
	}
	owners := make(map[value]string)
	for i, op := range w.history {
		r, v := op.Input.(countmill.NextRequest), op.Output.(countmill.Values)
		owner := "id " + r.ID
		if r.ID == "" {
			owner = fmt.Sprint("call ", i)
		}
		for n := v.First; n > 0 && n <= v.Last; n++ {
			if other, ok := owners[value{r.Sequence, n}]; ok && other != owner {
				return fmt.Errorf("sequence %s gave %d to %s and to %s", r.Sequence, n, other, owner)
			}
			owners[value{r.Sequence, n}] = owner
		}
	}
	switch porcupine.CheckOperationsTimeout(rows.ToModel(), w.history, 2*time.Second) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return errUndecided
	}
	return fmt.Errorf("no order explains the history:\n%s", w.text())
}

func (w *world) text() (text string) {
	for _, op := range w.history {
		text += fmt.Sprintf("%d to %d ms: %+v: %v\n", op.Call/1e6, op.Return/1e6, op.Input, op.Output)
	}
	return text
}
