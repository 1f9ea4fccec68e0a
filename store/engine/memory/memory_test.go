package memory_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
	"github.com/countmill/countmill/store/engine/memory"
)

// A commit of ten sums and a marker.
func BenchmarkCommit(b *testing.B) {
	e := memory.New(enginetest.Kinds(), memory.Options{}).Open()
	c := engine.Change{}
	add := []engine.Field{{ID: 4, Value: engine.IntOf(1)}, {ID: 5, Value: engine.IntOf(1)}}
	names := make([]string, 10)
	for i := range names {
		names[i] = fmt.Sprintf("page:%d", i)
	}
	n := 0
	changes := func(yield func(*engine.Change) bool) {
		n++
		c = engine.Change{Key: engine.Key{Kind: 1, Name: fmt.Sprint(n)}, Op: engine.Insert}
		if !yield(&c) {
			return
		}
		c = engine.Change{Add: add}
		for i := range names {
			c.Key = engine.Key{Kind: 2, Place: uint64(i), Name: names[i]}
			if !yield(&c) {
				return
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Commit(context.Background(), &engine.Commit{Changes: changes}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkView(b *testing.B) {
	e := memory.New(enginetest.Kinds(), memory.Options{}).Open()
	keys := []engine.Key{{Kind: 3, Name: "a"}, {Kind: 3, Name: "b"}}
	b.ReportAllocs()
	for b.Loop() {
		v := e.View(time.Time{})
		if _, err := v.Get(context.Background(), keys, 4); err != nil {
			b.Fatal(err)
		}
		v.Close()
	}
}
