package pebble

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/store/engine"
)

// Transactions that wait together are one batch. Of those that read and change one row the first one wins, and an addition without a
// read meets any other.
func TestTransactionsOfALot(t *testing.T) {
	t.Parallel()
	e := openRows(t, Config{Dir: "/data", FS: vfs.NewMem()}, powerKinds)
	holdLots(e, few)
	commits := e.commits.last
	one := []engine.Field{{ID: ofCount, Value: engine.IntOf(1)}}
	var answers []<-chan error
	for at, row := range []struct {
		name string
		read bool
	}{{"a", true}, {"b", true}, {"a", false}, {"a", true}, {"a", true}, {"b", false}} {
		key, answer := engine.Key{Kind: sumRow, Name: row.name}, make(chan error, 1)
		answers = append(answers, answer)
		go func() {
			_, err := e.Transact(t.Context(), false, func(tx engine.Tx) (err error) {
				if row.read {
					_, err = tx.Get(t.Context(), []engine.Key{key}, ofCount)
				}
				tx.Change(&engine.Change{Key: key, Add: one})
				return err
			})
			answer <- err
		}()
		waitFor(t, "the transaction is in the lot", func() bool { return gathered(e) == at+1 })
	}
	holdLots(e, -few)
	for at, conflicts := range []bool{false, false, false, true, true, false} {
		if err := <-answers[at]; errors.Is(err, engine.ErrConflict) != conflicts || err != nil && !conflicts {
			t.Errorf("transaction %d: %v", at, err)
		}
	}
	if got := e.commits.last - commits; got != 1 {
		t.Errorf("%d batches, want 1", got)
	}
	v := e.View()
	defer v.Close()
	rows, err := v.Get(t.Context(), []engine.Key{{Kind: sumRow, Name: "a"}, {Kind: sumRow, Name: "b"}}, ofCount)
	if err != nil || rows[0].Int64(ofCount) != 2 || rows[1].Int64(ofCount) != 2 {
		t.Errorf("the rows have %v (%v), want 2 and 2", rows, err)
	}
}

// A transaction that has lost a row waits for no lot the next time: beside folds of a hot counter it would lose again. Later ones wait.
func TestLoserWaitsForNoLot(t *testing.T) {
	t.Parallel()
	e := openRows(t, Config{Dir: "/data", FS: vfs.NewMem()}, powerKinds)
	change := engine.Change{Key: engine.Key{Kind: sumRow, Name: "hot"}, Add: []engine.Field{{ID: ofCount, Value: engine.IntOf(1)}}}
	answers := make(chan error, 1)
	transact := func() {
		_, err := e.Transact(t.Context(), false, func(tx engine.Tx) error {
			_, err := tx.Get(t.Context(), []engine.Key{change.Key}, ofCount)
			tx.Change(&change)
			return err
		})
		answers <- err
	}
	for range 2 {
		holdLots(e, few)
		go transact()
		waitFor(t, "the transaction is in the lot", func() bool { return gathered(e) == 1 })
		if _, err := e.Commit(t.Context(), &engine.Commit{Changes: engine.Changes(change)}); err != nil {
			t.Fatal(err)
		}
		holdLots(e, -few)
		if err := <-answers; !errors.Is(err, engine.ErrConflict) {
			t.Fatalf("got %v, want a conflict", err)
		}
		holdLots(e, few)
		go transact()
		waitFor(t, "the transaction has its outcome, or is in a lot", func() bool { return len(answers)+gathered(e) == 1 })
		if gathered(e) == 1 {
			t.Error("a transaction that has lost waits for a lot")
		}
		holdLots(e, -few)
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
}

// holdLots makes lots wait, and with -few no longer.
func holdLots(e *database, n int) {
	e.lots.mu.Lock()
	e.lots.running += n
	e.lots.mu.Unlock()
	e.lots.ended.Broadcast()
}

// gathered is how many transactions wait together.
func gathered(e *database) int {
	e.lots.mu.Lock()
	defer e.lots.mu.Unlock()
	return len(e.lots.open)
}
