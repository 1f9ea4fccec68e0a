package rows

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/faultproxy"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

// Kinds and fields of the suite.
const (
	once, shard, record engine.KindID  = 1, 2, 3
	tally, count        engine.FieldID = 3, 4
)

func one(id engine.FieldID, n int64) []engine.Field {
	return []engine.Field{{ID: id, Value: engine.IntOf(n)}}
}

// Connections are cut while commits and transactions are under way. Each attempt inserts a row of its own, and adds 1. The rows then
// say which attempts were applied: every acknowledged one, none that was refused for certain, and the sums count exactly these.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	address := schema(t)
	direct := open(t, address, enginetest.Kinds())
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := faultproxy.Start(t, u.Host)
	u.Host = proxy.Host()
	e := open(t, u.String(), enginetest.Kinds())
	proxy.Delay(3 * time.Millisecond) // so that a cut finds calls under way

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := engine.Key{Kind: record, Name: "a"}
	mark := func(id string) engine.Change {
		return engine.Change{Key: engine.Key{Kind: once, Name: id}, Op: engine.Insert}
	}
	calls := map[string]func(id string) error{
		"commit": func(id string) error {
			_, err := e.Commit(ctx, &engine.Commit{Changes: engine.Changes(mark(id), engine.Change{Key: a, Add: one(count, 1)})})
			return err
		},
		"transact": func(id string) error {
			_, err := e.Transact(ctx, false, func(tx engine.Tx) error {
				rows, err := tx.Get(ctx, []engine.Key{a}, tally)
				if err != nil {
					return fmt.Errorf("%w: %w", engine.ErrNotApplied, err)
				}
				c := mark(id)
				tx.Change(&c)
				tx.Change(&engine.Change{Key: a, Set: one(tally, rows[0].Int64(tally)+1)})
				return nil
			})
			return err
		},
	}
	var outcomes sync.Map // the error of each attempt
	var open, done atomic.Int32
	var group sync.WaitGroup
	const enough = 30
	for name, call := range calls {
		for worker := range 2 {
			group.Go(func() {
				for i := 0; open.Load() < enough && ctx.Err() == nil; i++ {
					id := fmt.Sprintf("%s %d %d", name, worker, i)
					err := call(id)
					if err != nil && !certain(err) {
						open.Add(1)
					}
					if outcomes.Store(id, err); err == nil {
						done.Add(1)
					} else {
						time.Sleep(10 * time.Millisecond) // attempts without a pause would keep other tests from the server
					}
				}
			})
		}
	}
	for open.Load() < enough && ctx.Err() == nil {
		for before := done.Load(); done.Load() < before+10 && open.Load() < enough && ctx.Err() == nil; { // until connections are there again
			time.Sleep(time.Millisecond)
		}
		proxy.Cut()
		proxy.Heal()
	}
	group.Wait()
	applied := map[byte]int64{}
	outcomes.Range(func(id, outcome any) bool {
		err, _ := outcome.(error)
		row := read(t, direct, engine.Key{Kind: once, Name: id.(string)})
		if row.Exists {
			applied[id.(string)[0]]++
		}
		if err == nil && !row.Exists || err != nil && certain(err) && row.Exists {
			t.Errorf("%s: the answer is %v, and its row exists: %t", id, err, row.Exists)
		}
		return true
	})
	row := read(t, direct, a)
	if row.Int64(count) != applied['c'] || row.Int64(tally) != applied['t'] {
		t.Errorf("the sums are %d and %d, want %d and %d", row.Int64(count), row.Int64(tally), applied['c'], applied['t'])
	}
	t.Logf("%d commits and %d transactions were applied; %d outcomes were open", applied['c'], applied['t'], open.Load())
}

// certain reports whether an error says that nothing was applied.
func certain(err error) bool {
	for _, e := range []error{engine.ErrExists, engine.ErrMissing, engine.ErrConflict, engine.ErrOutdated, engine.ErrRefused, engine.ErrNotApplied, engine.ErrDeployment} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func read(t *testing.T, e engine.Engine, key engine.Key) engine.Row {
	t.Helper()
	v := e.View()
	defer v.Close()
	rows, err := v.Get(context.Background(), []engine.Key{key}, engine.All)
	if err != nil {
		t.Fatal(err)
	}
	return rows[0]
}
