package pebble

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// FuzzStored: the store refuses stored bytes, or would write the same bytes for the value that it
// reads.
func FuzzStored(f *testing.F) {
	at := time.UnixMicro(1_700_000_000_000_000).UTC()
	letter, err := encodeDead(&store.DeadLetter{Payload: []byte("p"), Source: "s", Reason: "r", Time: at, At: at})
	if err != nil {
		f.Fatal(err)
	}
	for _, value := range [][]byte{
		nil, encodeSeries(nil, []slotSum{{3, fromInt64(-1)}, {quarterSlots, fromInt64(1 << 62)}}), shardSum{count: fromInt64(5), bucketed: fromInt64(3)}.encode(nil), shardSum{count: fromInt64(5), grouped: []indexSum{{2, fromInt64(3)}, {300, fromInt64(-1)}}}.encode(nil), appendOperand(nil, 7, true, []int64{2, 300}), fromInt64(-5).encode(nil), int128{1, 2}.encode(nil), encodeRecord(nil, 20),
		record{shards: 20, wasReset: true, ResetState: store.ResetState{Baseline: sums.Of(-5), ResetAt: at, DeletedAt: at}}.encode(nil),
		encodeMarker(nil, &store.Marker{Fingerprint: 7, Fold: 8, At: at}), letter, []byte(commitCount{"id", 5, at}.encode()), []byte(commitCount{"id", 5, at}.encode() + "x"),
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if sum, err := decodeSum(value); err == nil && len(value) == 8 && !bytes.Equal(sum.encode(nil), value) {
			t.Errorf("sum %x is written %x", value, sum.encode(nil))
		}
		readsShard(t, value)
		if r, err := decodeRecord(value); err == nil && !bytes.Equal(r.encode(nil), value) {
			t.Errorf("record %x is written %x", value, r.encode(nil))
		}
		if m, err := decodeMarker(wire.PartID{}, value); err == nil && !bytes.Equal(encodeMarker(nil, &m), value) {
			t.Errorf("marker %x is written %x", value, encodeMarker(nil, &m))
		}
		if d, err := decodeDead("k", value); err == nil {
			text, err := encodeDead(&d)
			if err != nil {
				t.Fatal(err)
			}
			again, err := decodeDead("k", text)
			if diff := cmp.Diff(d, again); err != nil || diff != "" {
				t.Errorf("dead letter %x, read, written and read again: %v\n%s", value, err, diff)
			}
		}
		if pairs, err := decodeSeries(value); err == nil {
			again, err := decodeSeries(encodeSeries(nil, pairs))
			if pairs = slices.DeleteFunc(pairs, func(p slotSum) bool { return p.sum == int128{} }); err != nil || !slices.Equal(pairs, again) {
				t.Errorf("series %x, read, written and read again: %v, %v", value, again, err)
			}
		}
		readsCommitCount(t, value)
	})
}

// readsShard: a shard that can be read is written in one way, and then read as the same.
func readsShard(t *testing.T, value []byte) {
	t.Helper()
	sum, err := decodeShard(value)
	if err != nil {
		return
	}
	var merged shardSum // leaves out sums of 0
	merged.plus(sum)
	written := merged.encode(nil)
	again, err := decodeShard(written)
	if err != nil || again.count != sum.count || again.bucketed != sum.bucketed || !slices.Equal(again.grouped, merged.grouped) {
		t.Errorf("shard %x, read as %+v, written as %x and read again: %+v, %v", value, sum, written, again, err)
	}
	if !bytes.Equal(again.encode(nil), written) {
		t.Errorf("shard %x is written as %x and as %x", value, written, again.encode(nil))
	}
	for _, g := range sum.grouped {
		if g.index <= 0 || sum.groupedBy(g.index) != g.sum {
			t.Errorf("shard %x has %+v by index %d, want %+v", value, sum.groupedBy(g.index), g.index, g.sum)
		}
	}
}

// readsCommitCount: a commit count is accepted only if every byte is as it was written.
func readsCommitCount(t *testing.T, value []byte) {
	t.Helper()
	files := vfs.NewMem()
	if err := files.MkdirAll("d", 0o777); err != nil {
		t.Fatal(err)
	}
	file, err := files.Create(filepath.Join("d", commitCountFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(bytes.Clone(value)); err != nil { // the file system may keep the bytes that it gets
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if x, found, err := readCommitCount(files, "d"); err == nil && (!found || x.encode() != string(value)) {
		t.Errorf("commit count %q is taken for %+v", value, x)
	}
}

// FuzzMerge: operands of shards and records merge to the same bytes in any grouping, or every grouping
// is refused.
func FuzzMerge(f *testing.F) {
	f.Add([]byte("abcdefgh12345678"), []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), []byte("\x7f\xff\xff\xff\xff\xff\xff\xff"), uint64(1))
	f.Add([]byte("short"), []byte(""), []byte("abcdefgh"), uint64(2))
	f.Add(appendOperand(nil, 7, true, []int64{2, 300}), appendOperand(nil, -7, false, []int64{2}), appendOperand(nil, 0, false, []int64{5}), uint64(3))
	ks := newKeyspace("ns")
	f.Fuzz(func(t *testing.T, a, b, c []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		values := [][]byte{a, b, c}
		for _, key := range [][]byte{ks.shard(nil, 1, "a", 0), ks.named(nil, kindRecord, "a"), ks.series(nil, 5, 1, "a")} {
			good := true
			for _, v := range values {
				if _, err := merger.Merge(key, v); err != nil {
					good = false
				}
			}
			if !good {
				continue
			}
			want := mergeAll(t, random, key, values)
			if got := mergeAll(t, random, key, values); !bytes.Equal(got, want) {
				t.Errorf("operands %x merge to %x and to %x", values, want, got)
			}
			if kindOf(key) == kindShard {
				checkSum(t, values, want)
			}
		}
	})
}

// checkSum compares the merged sums of a shard with those of math/big, modulo 2^128.
func checkSum(t *testing.T, operands [][]byte, merged []byte) {
	t.Helper()
	read := func(b []byte) shardSum {
		v, err := decodeShard(b)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	parts := map[string]func(s shardSum) int128{
		"counts": func(s shardSum) int128 { return s.count }, "bucketed parts": func(s shardSum) int128 { return s.bucketed },
	}
	for _, o := range operands {
		for _, g := range read(o).grouped {
			parts[fmt.Sprint("parts of index ", g.index)] = func(s shardSum) int128 { return s.groupedBy(g.index) }
		}
	}
	for what, part := range parts {
		want := new(big.Int)
		for _, o := range operands {
			want.Add(want, part(read(o)).big())
		}
		beyond := new(big.Int).Sub(want, part(read(merged)).big())
		if beyond.Mod(beyond, new(big.Int).Lsh(big.NewInt(1), 128)).Sign() != 0 {
			t.Errorf("the %s of operands %x sum to %s, merged to %x", what, operands, want, merged)
		}
	}
}
