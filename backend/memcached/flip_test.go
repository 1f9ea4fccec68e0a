package memcached

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
)

// Memory, a switch or another program changes a bit of a value. No such value is served as another
// total, or with another age. Each is an error that a metric counts.
func TestFlippedBitsAreMisses(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Servers: []string{emulator.Memcached(t).Host()}, Prefix: emulator.Project() + ":", Key: [32]byte{1, 2, 3}})
	right := total("counter", 123_456_789, time.Now().Truncate(time.Microsecond))
	right.Shards = 300
	set(t, c, right)
	entries, _, err := c.lookUp(t.Context(), []string{right.Counter})
	if err != nil {
		t.Fatal(err)
	}
	item := entries[right.Counter].item
	served, silent, bits := 0, 0, 8*len(item.Value)
	for bit := range bits {
		flipped := *item
		flipped.Value = append([]byte(nil), item.Value...)
		flipped.Value[bit/8] ^= 1 << (bit % 8)
		if err := c.pool.all[0].client.Set(&flipped); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(t.Context(), []string{right.Counter})
		if len(got) > 0 {
			served++
			t.Logf("bit %d: got %+v", bit, got[0])
		}
		if err == nil {
			silent++
		}
	}
	if served > 0 || silent > 0 {
		t.Errorf("of %d flipped bits %d were served and %d were no errors, want none", bits, served, silent)
	}
	// A reader that has read the store replaces the value.
	set(t, c, right)
	want(t, c, right.Counter, right.Total)
}

// Processes that share a memcached and a prefix serve each other's totals only if they have the same
// key.
func TestKeysTellDatabasesApart(t *testing.T) {
	t.Parallel()
	host := emulator.Memcached(t).Host()
	cfg := Config{Servers: []string{host}, Prefix: emulator.Project() + ":", Key: [32]byte{1}}
	a, same := open(t, cfg), open(t, cfg)
	cfg.Key[31]++
	other := open(t, cfg)
	set(t, a, total("c", 5, time.Now()))
	want(t, same, "c", 5)
	if got, err := other.Get(t.Context(), []string{"c"}); len(got) != 0 || !errors.Is(err, errValue) {
		t.Errorf("with another key: got %v, %v, want an error", got, err)
	}
	set(t, other, total("c", 7, time.Now()))
	want(t, other, "c", 7)
	if err := a.Set(t.Context(), []store.CachedTotal{total(strings.Repeat("x", maxValue), 1, time.Now())}, time.Hour); !errors.Is(err, errLarge) {
		t.Errorf("a value over the limit: got %v, want %v", err, errLarge)
	}
}
