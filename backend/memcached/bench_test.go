package memcached

import (
	"fmt"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
)

// BenchmarkGet gets 100 totals from a memcached on this machine.
func BenchmarkGet(b *testing.B) {
	c := open(b, Config{Servers: []string{emulator.Memcached(b).Host()}, Timeout: time.Minute})
	names, totals := make([]string, 100), make([]store.CachedTotal, 100)
	for i := range names {
		names[i] = fmt.Sprintf("shop:product:%d:views", 1000+i)
		totals[i] = total(names[i], int64(i)*1e6, time.Now())
	}
	if err := c.Set(b.Context(), totals, time.Hour); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if got, err := c.Get(b.Context(), names); err != nil || len(got) != len(names) {
			b.Fatalf("%d totals, %v", len(got), err)
		}
	}
}

// BenchmarkDecode decodes one value.
func BenchmarkDecode(b *testing.B) {
	codec, err := newCodec([32]byte{7})
	if err != nil {
		b.Fatal(err)
	}
	value, err := codec.encode(total("shop:product:1000:views", 123456789, time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := codec.decode(value, "shop:product:1000:views"); err != nil {
			b.Fatal(err)
		}
	}
}
