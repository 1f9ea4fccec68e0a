package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A disk that is full refuses folds for certain, as a matter of the deployment. When there is room again, the same folds count, once.
func TestFullDisk(t *testing.T) {
	longtest.Only(t, "mounts a small disk, as root")
	server := emulator.NewPostgres(t)
	dir := emulator.PostgresDisk(t, 16<<20)
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	session := newSession(t, server.URL)
	session.do("create tablespace small location '"+dir+"'", "alter database postgres set default_tablespace = small")
	s := open(t, postgres.Config{URL: server.URL})

	sum, refused := int64(0), 0
	fold := func(n int) error {
		now := time.Now()
		c := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, int64(n))}, Rules: store.AnyRules}
		for i := range 200 {
			c.Markers = append(c.Markers, store.Marker{ID: wire.IncrementID("a", fmt.Sprint(n, i)), Fold: 1, At: now, ExpireAt: now.Add(time.Hour)})
		}
		_, err := s.Fold(t.Context(), c)
		if err == nil {
			sum += int64(n)
		}
		return err
	}
	var waiting []int
	for n := 1; refused < 20 && n < 10_000; n++ {
		if err := fold(n); errors.Is(err, store.ErrDeployment) {
			refused, waiting = refused+1, append(waiting, n)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Fatal("the disk is not full")
	}
	check := func() {
		t.Helper()
		if got, err := look(t.Context(), s, "a"); err != nil || got.Sum.String() != fmt.Sprint(sum) {
			t.Errorf("the sum is %v (%v), want %d", got.Sum, err, sum)
		}
	}
	check()
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	for _, n := range waiting {
		if err := fold(n); err != nil {
			t.Error(err)
		}
	}
	check()
	t.Logf("%d folds were refused", refused)
}
