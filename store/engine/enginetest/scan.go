package enginetest

import (
	"fmt"
	"slices"

	"github.com/countmill/countmill/store/engine"
)

var scanTests = []suiteTest{
	{"ScanByKeys", testScanByKeys},
	{"ScanByNames", testScanByNames},
	{"ScanPrefixes", testScanPrefixes},
	{"ScansBesideCommits", testScansBesideCommits},
}

// shards makes rows of several places, names and parts, and returns them in the order of keys.
func (s *suite) shards() []engine.Key {
	keys := []engine.Key{
		placed(0, "b", 0), placed(1, "a", 0), placed(1, "a", 1), placed(1, "a", 256), placed(1, "a", 1<<24-1), placed(1, "ab", 0),
		placed(1, "b", 0), placed(2, "a", 3), placed(255, "z", 0), placed(256, "a", 2), placed(1<<63, "a", 7), placed(1<<64-1, "b", 1),
	}
	var changes []engine.Change
	for i, key := range keys {
		changes = append(changes, add(key, int64(i)+1))
	}
	s.commit(changes...)
	s.commit(add(named(record, "a"), 1), put(named(doc, "a"), "x")) // kinds do not mix
	return keys
}

func testScanByKeys(s *suite) {
	keys := s.shards()
	s.wantScan(engine.Range{Kind: shard}, keys...)
	for i := range keys {
		for j := range keys {
			s.wantScan(engine.Range{Kind: shard, From: keys[i], To: keys[j]}, keys[i:max(i, j)]...)
		}
		s.wantScan(engine.Range{Kind: shard, From: keys[i], After: true}, keys[i+1:]...)
	}
	s.wantScan(engine.Range{Kind: shard, From: engine.Key{Place: 1}, To: engine.Key{Place: 3}}, keys[1:8]...)
	s.wantScan(engine.Range{Kind: shard, From: engine.Key{Place: 1, Name: "a"}, To: engine.Key{Place: 1, Name: "a", Part: 300}}, keys[1:4]...)
	s.wantScan(engine.Range{Kind: shard, From: engine.Key{Place: 3}, To: engine.Key{Place: 200}})
	s.wantScan(engine.Range{Kind: record}, named(record, "a"))
	s.wantScan(engine.Range{Kind: blob})
	rows := s.view().Scan(s.ctx(), engine.Range{Kind: shard}, count)
	defer rows.Close()
	for i, n := range keys {
		if row := rows.Next(); row == nil || !row.Exists || row.Key != n || row.Int64(count) != int64(i)+1 {
			s.Fatalf("row %d of the scan is %+v (%v), want %v with %d", i, row, rows.Err(), n, i+1)
		}
	}
}

func testScanByNames(s *suite) {
	keys := s.shards()
	if s.limits.ByName {
		slices.SortFunc(keys, engine.Key.CompareNames)
		both := func(r engine.Range, want ...engine.Key) {
			s.Helper()
			r.Kind, r.ByName = shard, true
			s.wantScan(r, want...)
			r.Reverse = true
			want = slices.Clone(want)
			slices.Reverse(want)
			s.wantScan(r, want...)
		}
		both(engine.Range{}, keys...)
		both(engine.Range{From: engine.Key{Name: "a"}, To: engine.Key{Name: "aa"}}, keys[:7]...)
		both(engine.Range{Prefix: "a"}, keys[:8]...)
		both(engine.Range{Prefix: "ab"}, keys[7])
		both(engine.Range{Prefix: "c"})
		both(engine.Range{From: keys[2], To: engine.Key{Name: "b"}}, keys[2:8]...)
		both(engine.Range{From: keys[2], After: true}, keys[3:]...)
	}
	// A kind without places has the order of names by its keys.
	var docs []engine.Key
	for i := range 9 {
		docs = append(docs, named(doc, fmt.Sprintf("%03d", 3*i)))
		s.commit(put(docs[i], "x"))
	}
	r := engine.Range{Kind: doc, ByName: s.limits.ByName, From: engine.Key{Name: "001"}, To: docs[6]}
	s.wantScan(r, docs[1:6]...)
	r.Reverse = true
	s.wantScan(r, docs[5], docs[4], docs[3], docs[2], docs[1])
	r.To = docs[4]
	s.wantScan(r, docs[3], docs[2], docs[1])
	r.From, r.To = engine.Key{}, engine.Key{}
	docs = append(docs, named(doc, "a"))
	slices.Reverse(docs)
	s.wantScan(r, docs...)
}

// A prefix may be empty, end with the last byte, and be a name itself.
func testScanPrefixes(s *suite) {
	names := []string{"\x00", "\x00\xff", "a", "a\x00", "a\xfe", "a\xff", "a\xff\x00", "a\xff\xff", "a\xff\xff\xff", "b", "\xc3\xa9", "\xff", "\xff\xff", "\xff\xff\xff"}
	for _, name := range names {
		s.commit(put(named(blob, name), name))
	}
	texts := []string{"a", "a\u007f", "aé", "a\ud7ff", "a\ue000", "a\U0010ffff", "a\U0010ffffx", "b", "é", "\U0010ffff", "\U0010ffffa"}
	for _, name := range texts {
		s.commit(add(named(record, name), 1), put(named(doc, name), name))
	}
	for kind, names := range map[engine.KindID][]string{blob: names, record: texts, doc: texts} {
		for _, prefix := range append(slices.Clone(names), "", "c") {
			var want []engine.Key
			for _, name := range names {
				if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
					want = append(want, named(kind, name))
				}
			}
			slices.SortFunc(want, engine.Key.Compare)
			s.wantScan(engine.Range{Kind: kind, Prefix: prefix}, want...)
			if len(want) > 0 {
				s.wantScan(engine.Range{Kind: kind, Prefix: prefix, From: want[0], After: true}, slices.Clone(want[1:])...)
				s.wantScan(engine.Range{Kind: kind, Prefix: prefix, To: want[len(want)-1]}, slices.Clone(want[:len(want)-1])...)
			}
		}
	}
}

// V3: scans have the rows of their moment, beside commits that write, make and delete rows. Several are open at once, because a
// merge walks over them together.
func testScansBesideCommits(s *suite) {
	key := func(place, i int) engine.Key { return placed(uint64(place), fmt.Sprintf("%03d", i), 0) }
	const n, scans = 40, 2
	var changes []engine.Change
	for i := range n {
		changes = append(changes, add(key(0, 2*i), 1), add(key(1, 2*i), 2))
	}
	s.commit(changes...)
	v := s.view()
	var open [scans]engine.Rows
	for place := range open {
		from := uint64(place)
		open[place] = v.Scan(s.ctx(), engine.Range{Kind: shard, From: engine.Key{Place: from}, To: engine.Key{Place: from + 1}, Page: 10}, count)
		defer open[place].Close()
	}
	for i := range n {
		for place, rows := range open {
			if row := rows.Next(); row == nil || row.Key != key(place, 2*i) || row.Int64(count) != int64(place)+1 {
				s.Fatalf("row %d of the place %d is %+v (%v)", i, place, row, rows.Err())
			}
		}
		s.commit(add(key(0, 2*i+1), 1), add(key(1, 2*i+2), 5), del(key(0, max(0, 2*i-2))))
		s.in(v, key(0, 0))
	}
	for _, rows := range open {
		if row := rows.Next(); row != nil || rows.Err() != nil {
			s.Errorf("a scan goes on with %+v (%v)", row, rows.Err())
		}
	}
}
