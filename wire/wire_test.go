package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

var epoch = time.UnixMicro(1_700_000_000_000_000)

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	one := func(p Part) []byte {
		if p.Kind == Anonymous {
			p.ID = anyID
		}
		return Append(nil, &Batch{Time: epoch, Parts: []Part{p}})
	}
	many := make([]Entry, MaxEntries+1)
	for i := range many {
		many[i] = Entry{fmt.Sprint("c", i), 1}
	}
	good := one(Part{Entries: []Entry{{"a", 1}}})
	withHeader := func(fields ...[]byte) []byte {
		header := appendHeader(nil, &Batch{Time: epoch})
		return slices.Concat(header, slices.Concat(fields...), good[len(header):])
	}
	if _, err := Decode(withHeader(wrap(batchFlush, anyID[:]), []byte{batchNumber << 3, 1})); err != nil {
		t.Fatalf("flush and number: %v", err)
	}
	for name, payload := range map[string][]byte{
		"empty":                 {},
		"no parts":              Append(nil, &Batch{Time: epoch}),
		"no entries":            one(Part{}),
		"too many entries":      one(Part{Entries: many}),
		"counter twice":         one(Part{Entries: []Entry{{"a", 1}, {"a", 2}}}),
		"delta 0":               one(Part{Entries: []Entry{{"a", 0}}}),
		"delta beyond 2^62":     one(Part{Entries: []Entry{{"a", MaxSum + 1}}}),
		"empty counter":         one(Part{Entries: []Entry{{"", 1}}}),
		"bad counter":           one(Part{Entries: []Entry{{"a\n", 1}}}),
		"unknown kind":          one(Part{Kind: 9, Entries: []Entry{{"a", 1}}}),
		"follower without head": one(Part{Kind: Follower, Number: 1, Request: 7, Entries: []Entry{{"a", 1}}}),
		"request, not keyed":    one(Part{Request: 7, Entries: []Entry{{"a", 1}}}),
		"two in identified":     one(Part{Kind: Identified, Event: "x", Entries: []Entry{{"a", 1}, {"b", 1}}}),
		"part of year 1970":     one(Part{Time: time.UnixMicro(0), Entries: []Entry{{"a", 1}}}),
		"part before 1970":      one(Part{Time: time.UnixMicro(-1), Entries: []Entry{{"a", 1}}}),
		"part of year 2262":     one(Part{Time: MaxTime, Entries: []Entry{{"a", 1}}}),
		"batch before 1970":     Append(nil, &Batch{Time: time.UnixMicro(-1), Parts: []Part{{ID: anyID, Entries: []Entry{{"a", 1}}}}}),
		"batch of year 2262":    Append(nil, &Batch{Time: MaxTime, Parts: []Part{{ID: anyID, Entries: []Entry{{"a", 1}}}}}),
		"batch of the end":      Append(nil, &Batch{Time: time.UnixMicro(math.MaxInt64), Parts: []Part{{ID: anyID, Entries: []Entry{{"a", 1}}}}}),
		"version 0":             append([]byte{8, 0}, good[2:]...),
		"version 1":             append([]byte{8, 1}, good[2:]...),
		"flush of 15 bytes":     withHeader(wrap(batchFlush, make([]byte, 15))),
		"flush of zeros":        withHeader(wrap(batchFlush, make([]byte, 16))),
		"number, no flush":      withHeader([]byte{batchNumber << 3, 1}),
		"number 0":              withHeader(wrap(batchFlush, anyID[:]), []byte{batchNumber << 3, 0}),
		"instance":              withHeader(wrap(batchFlush, anyID[:]), wrap(5, anyID[:])),
		"sequence":              withHeader(wrap(batchFlush, anyID[:]), []byte{6 << 3, 1}),
		"trailing field":        append(append([]byte{}, good...), 8, 1),
		"json":                  []byte(`{"counter":"a"}`),
	} {
		if _, err := Decode(payload); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got error %v, want ErrInvalid", name, err)
		}
	}
	far := Append(nil, &Batch{Time: MaxTime, Parts: []Part{{ID: anyID, Entries: []Entry{{"a", 1}}}}})
	if _, err := Decode(far); err == nil || !strings.Contains(err.Error(), "time_us 9214646400000000 is out of range (limit: 1970 to 2261)") {
		t.Errorf("batch of year 2262: got error %v, want one that names the field and the limit", err)
	}
	var newer NewerError
	if _, err := Decode(append([]byte{8, 3}, good[2:]...)); !errors.As(err, &newer) || newer.Version != 3 {
		t.Errorf("version 3: got error %v, want a NewerError of version 3", err)
	}
}

// The ids, the hashes, the order and the cut are frozen: markers of parts that were
// published by an older version must be found by a newer one.
func TestFrozen(t *testing.T) {
	t.Parallel()
	incs := []countmill.Increment{
		{Counter: "b", Delta: 2}, {Counter: "a", Delta: 1}, {Counter: "b", Delta: -5},
		{Counter: "gone", Delta: 1}, {Counter: "gone", Delta: -1},
		{Counter: "a", Delta: 1, ID: "e1", Time: epoch},
	}
	for i := range 30 {
		incs = append(incs, countmill.Increment{Counter: fmt.Sprintf("page:/%d", i), Delta: int64(i + 1)})
	}
	parts, err := CutRequest("", "order-1", incs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parts {
		got = append(got, fmt.Sprintf("%s %s %016x %d %v", p.ID, p.Kind, uint64(p.Fingerprint()), len(p.Entries), p.Entries[0]))
	}
	got = append(got,
		fmt.Sprintf("%016x", HashCounter("page:/home")),
		fmt.Sprintf("%016x", Order("page:/home")), fmt.Sprintf("%016x", Order("page:de:/home")), fmt.Sprintf("%016x", Order("page:de")),
		fmt.Sprintf("%016x", ShardHash("page:/home", 3)),
		MessageID("t", "123", 0).String(), RenewedOf(parts[1].ID, parts[1].Fingerprint()).String(),
		ResetID("page:/home", "r1").String(), DeadLetterID("1234").String(), FlushID{1}.MessageUUID(3))
	want := []string{
		"3c724b774f059003a1b1995e00000000 head 611f61f2ab7e069a 24 {page:/29 30}",
		"3c724b774f059003a1b1995e00000001 follower 611f61f2ab7e069a 8 {page:/1 2}",
		"2629a04fd73aa6b0547268d7a720be53 identified follower ec171ffc68efe465 1 {a 1}",
		"d022ad0bce210e62",
		"d022ad0bce210e62", "e7576c18684170f7", "e7576c18f02cc0c2",
		"aac91a384c0082a1",
		"435cdecef4bd733731d49af900000000",
		"5cc9c6690b55564d195bcc1d177b0637",
		"75957f056371e795873711765f0d6a71",
		"8ba373bbb10b6b2a94b8c759ef7e20f3",
		"007c58aae58d5facf05366ddf774eb1a",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frozen values changed (-want +got):\n%s", diff)
	}
}

// Each sum is in a part of its minute. A repeat with other times has the same parts, as long as the same increments
// share a minute; else it is another request.
func TestCutRequestByMinute(t *testing.T) {
	t.Parallel()
	begin := epoch.Truncate(time.Minute)
	at := func(minutes ...int) (incs []countmill.Increment) {
		for i, m := range minutes {
			incs = append(incs, countmill.Increment{Counter: fmt.Sprint("c", i%2), Delta: int64(i + 1), Time: begin.Add(time.Duration(m) * time.Minute)})
		}
		return incs
	}
	cut := func(incs []countmill.Increment) []Part {
		t.Helper()
		parts, err := CutRequest("", "k", incs)
		if err != nil {
			t.Fatal(err)
		}
		return parts
	}
	untimed := append(at(8, 2, 8, 20), countmill.Increment{Counter: "c0", Delta: 10})
	parts := cut(untimed)
	var got []string
	b := Batch{Time: begin.Add(time.Hour)}
	for i := range parts {
		p := &parts[i]
		got = append(got, fmt.Sprint(b.Minute(p)-MinuteOf(begin), p.Entries))
		if !p.Time.Equal(begin.Add(20*time.Minute)) || p.ID != KeyID("", "k", i) {
			t.Errorf("part %d has time %s and id %s, want the newest time and the key's id", i, p.Time, p.ID)
		}
	}
	if want := []string{"2 [{c1 2}]", "8 [{c0 4}]", "20 [{c1 4} {c0 10}]"}; !slices.Equal(got, want) {
		t.Errorf("got the minutes %q, want %q", got, want)
	}
	if parts[0].Kind != Head || parts[0].Number != 2 {
		t.Errorf("the head is %+v, want one with 2 followers", parts[0])
	}
	same := func(a, b []Part) bool {
		return slices.EqualFunc(a, b, func(a, b Part) bool {
			return a.ID == b.ID && a.Request == b.Request && slices.Equal(a.Entries, b.Entries)
		})
	}
	want := cut(at(1, 2, 2))
	for name, tt := range map[string]struct {
		minutes []int
		same    bool
	}{
		"stamped anew":        {[]int{61, 99, 99}, true},
		"in one minute":       {[]int{1, 1, 1}, false},
		"in another order":    {[]int{2, 1, 1}, false},
		"divided in three":    {[]int{1, 2, 3}, false},
		"divided another way": {[]int{1, 1, 2}, false},
	} {
		again := cut(at(tt.minutes...))
		if same(want, again) != tt.same || (want[0].Request == again[0].Request) != tt.same {
			t.Errorf("a repeat %s: same parts %t, same request %t, want %t", name, same(want, again), want[0].Request == again[0].Request, tt.same)
		}
	}
}

// A request of the past is one minute, whatever the times of its increments are.
func TestCutPast(t *testing.T) {
	t.Parallel()
	parts, err := CutPast(7, "", "k", []countmill.Increment{
		{Counter: "a", Delta: 1, Time: epoch}, {Counter: "a", Delta: 2, Time: epoch.Add(time.Hour)}, {Counter: "b", Delta: 1, ID: "x", Time: epoch},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 2 || parts[0].Minute != 7 || parts[1].Minute != 7 || parts[0].Entries[0].Delta != 3 {
		t.Errorf("got %+v, want a head with the sum 3 and the increment with an id, both at minute 7", parts)
	}
}

// An increment that is repeated under its id after its marker expired is refused for its time. It
// must not get the time of a younger increment in the same request.
func TestCutRequestLeavesAnIncrementWithAnIDItsTime(t *testing.T) {
	t.Parallel()
	at := func(hours int) time.Time { return epoch.Add(time.Duration(hours) * time.Hour) }
	parts, err := CutRequest("", "k", []countmill.Increment{
		{Counter: "a", Delta: 1, ID: "1", Time: at(1)},
		{Counter: "b", Delta: 1, Time: at(9)},
		{Counter: "b", Delta: 2},
		{Counter: "c", Delta: 1, ID: "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []time.Time
	for _, p := range parts {
		got = append(got, p.Time)
	}
	if want := []time.Time{at(9), at(1), at(9)}; !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("the key's part, the part of id 1 and that of id 2 are of %s, want %s", got, want)
	}
}

// An increment that is in a request twice has the older of its two times, in either order.
func TestCutRequestTakesTheOlderTimeOfAnID(t *testing.T) {
	t.Parallel()
	at := func(hours int) time.Time { return epoch.Add(time.Duration(hours) * time.Hour) }
	for _, times := range [][2]time.Time{{at(1), at(2)}, {at(2), at(1)}, {at(1), {}}, {{}, at(1)}} {
		parts, err := CutRequest("", "k", []countmill.Increment{
			{Counter: "a", Delta: 1, ID: "1", Time: times[0]},
			{Counter: "a", Delta: 1, ID: "1", Time: times[1]},
			{Counter: "b", Delta: 1, Time: at(9)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) != 2 || !parts[1].Time.Equal(at(1)) {
			t.Errorf("times %s: got parts %v, want the id's of %s", times, parts, at(1))
		}
	}
}

func TestFingerprintOfRequestDistinguishesBodies(t *testing.T) {
	t.Parallel()
	bodies := [][]countmill.Increment{
		{{Counter: "a", Delta: 1}},
		{{Counter: "a", Delta: 2}},
		{{Counter: "b", Delta: 1}},
		{{Counter: "a", Delta: 1, ID: "x"}},
		{{Counter: "a", Delta: 1, ID: "y"}},
		{{Counter: "a", Delta: 1}, {Counter: "a", Delta: 1, ID: "x"}},
	}
	seen := make(map[Fingerprint]int)
	for i, incs := range bodies {
		parts, err := CutRequest("", "k", incs)
		if err != nil {
			t.Fatal(err)
		}
		if j, ok := seen[parts[0].Fingerprint()]; ok {
			t.Errorf("bodies %d and %d have one fingerprint", i, j)
		}
		seen[parts[0].Fingerprint()] = i
	}
}

// A batch is full at the limit, not before it, and a head that is the very first part is
// repeated like any other.
func TestPackFillsBatchesToTheLimit(t *testing.T) {
	t.Parallel()
	entries := make([]Entry, 3*MaxEntries)
	for i := range entries {
		entries[i] = Entry{fmt.Sprintf("c%02d", i), 1}
	}
	var parts []Part
	for i := range 3 {
		parts = append(parts, Part{
			ID: KeyID("", "k", i), Kind: Follower, Number: int32(i), Request: 7, Time: epoch, Entries: entries[i*MaxEntries:][:MaxEntries],
		})
	}
	parts[0].Kind, parts[0].Key, parts[0].Number = Head, &Key{"", "k"}, 2
	size := func(parts ...Part) int { return len(Append(nil, &Batch{Time: epoch, Parts: parts})) }
	for _, tt := range []struct {
		limit int
		want  [][]Part
	}{
		{size(parts...), [][]Part{parts}},
		{size(parts...) - 1, [][]Part{parts[:2], {parts[0], parts[2]}}},
		{size(parts[:2]...), [][]Part{parts[:2], {parts[0], parts[2]}}},
	} {
		var got [][]Part
		messages, _ := Pack(epoch, FlushID{}, parts, tt.limit)
		for i, payload := range messages {
			b, err := Decode(payload)
			if err != nil || len(payload) > tt.limit {
				t.Fatalf("limit %d: batch %d has %d bytes, error %v", tt.limit, i, len(payload), err)
			}
			got = append(got, b.Parts)
		}
		if diff := cmp.Diff(tt.want, got, sameBatch); diff != "" {
			t.Errorf("limit %d: parts of the batches differ (-want +got):\n%s", tt.limit, diff)
		}
	}
}
