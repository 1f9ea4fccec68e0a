package appengine

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/datastore"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestMain(m *testing.M) { os.Exit(emulator.Around(m).Run()) }

// at returns options for the emulator at host.
func at(host string) []option.ClientOption {
	return []option.ClientOption{option.WithEndpoint(host), option.WithoutAuthentication(), option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))}
}

func show(all []*total) (lines []string) {
	for _, t := range all {
		lines = append(lines, fmt.Sprintf("%s %q %d %d", t.layout, t.name, t.shards, t.sum))
	}
	return lines
}

// fill writes counters in every layout, and entities that fit none of them.
func fill(t *testing.T, host, project, namespace string) {
	t.Helper()
	w := newWriter(t, host, project, namespace)
	w.Python("page-7", 1, 2, 39)
	w.Python("page", 5)
	w.DB("old", 10, 20)
	w.DB("old1", 3)
	w.Java("votes", 1, 2, 3, 4, 5, 6)
	w.Java("a/ü b", 7)
	w.Java("same", 100)
	w.JDO("same", 10, 1, 1)
	w.Go(50, 60)
	w.GoCorrected("mended", 8, 9)
	w.Simple(1000, 200, 30)
	w.Put("CounterShards", "0", 0, datastore.Property{Name: "count", Value: int64(1)})
	w.Put("Task", "0", 0, datastore.Property{Name: "count", Value: int64(1)})
}

var javaNames = []string{"votes", "a/ü b", "same", "nobody"}

var filled = []string{`go "" 2 110`, `simple "" 3 1230`, `java "a/ü b" 1 7`, `go "mended" 2 17`, `db "old" 2 30`, `db "old1" 1 3`,
	`python "page" 1 5`, `python "page-7" 3 42`, `java "same" 1 100`, `jdo "same" 2 2`, `java "votes" 6 21`}

func TestEveryLayout(t *testing.T) {
	t.Parallel()
	for name, host := range map[string]string{"firestore": emulator.Firestore(t), "datastore": emulator.Datastore(t)} {
		for _, namespace := range []string{"", "elsewhere"} {
			s := Source{Project: emulator.Project(), Namespace: namespace, options: at(host)}
			fill(t, host, s.Project, namespace)
			if name == "firestore" {
				if _, err := s.read(t.Context()); !errors.Is(err, errNoKinds) {
					t.Errorf("kinds on the Firestore emulator: got error %v, want %v", err, errNoKinds)
				}
				s.JavaNames = javaNames
			}
			f, err := s.read(t.Context())
			if err != nil {
				t.Fatalf("%s %q: %v", name, namespace, err)
			}
			if diff := cmp.Diff(filled, show(f.ordered())); diff != "" {
				t.Errorf("%s %q: totals (-want +got):\n%s", name, namespace, diff)
			}
			if f.unknownCount != 0 || f.began.After(f.ended) {
				t.Errorf("%s %q: got unknown %v, %s to %s; want none", name, namespace, f.unknown, f.began, f.ended)
			}
			s.Namespace = "another"
			if f, err := s.read(t.Context()); err != nil || len(f.totals) != 0 {
				t.Errorf("%s: another namespace holds %+v, %v", name, f.totals, err)
			}
		}
	}
}

func TestShardOf(t *testing.T) {
	t.Parallel()
	check := func(key *datastore.Key, want string, properties ...any) {
		t.Helper()
		var list datastore.PropertyList
		for i := 0; i < len(properties); i += 2 {
			list = append(list, datastore.Property{Name: properties[i].(string), Value: properties[i+1]})
		}
		s, err := shardOf(key, list)
		got := fmt.Sprintf("%s %q %d", s.layout, s.name, s.count)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s %v: got %s, want %s", key, list, got, want)
		}
	}
	general := func(name string) *datastore.Key { return datastore.NameKey(kindGeneral, name, nil) }
	check(general("shard-a-b-12"), `python "a-b" 3`, "count", int64(3))
	check(general("shard--1-0"), `python "-1" 3`, "count", int64(3))
	check(general("shard-a-x"), errUnknown.Error(), "count", int64(3))
	check(general("shard-a-1"), "not an integer but <nil>", "count", nil)
	check(general("shard-a-1"), "not an integer but 1.5", "count", 1.5)
	check(general("shard-a-1"), "not an integer")
	check(general("a12"), `db "a" 3`, "name", "a", "count", int64(3))
	check(general("a12"), `db "a1" 3`, "name", "a1", "count", int64(3))
	check(general("b12"), errUnknown.Error(), "name", "a", "count", int64(3))
	check(general("shard3"), `go "" 3`, "Name", "", "Count", int64(3))
	check(general("shard3"), errUnknown.Error(), "Name", "a", "Count", int64(3))
	check(general("a-shard3"), `go "a" 3`, "Name", "a", "Count", int64(3))
	check(general("x"), `jdo "a" 3`, "counterName", "a", "count", int64(3))
	check(datastore.NameKey("CounterShard_a", "x", nil), errUnknown.Error(), "count", int64(1))
	check(datastore.NameKey("CounterShard_", "1", nil), `java "" 1`, "count", int64(1))
	check(datastore.NameKey(kindSimple, "1", general("p")), "has a parent", "count", int64(1))
}

func TestUnknownEntitiesAreNamed(t *testing.T) {
	t.Parallel()
	host, project := emulator.Firestore(t), emulator.Project()
	w := newWriter(t, host, project, "")
	for i := range 12 {
		w.Put(kindGeneral, fmt.Sprintf("mine%d", i), 0, datastore.Property{Name: "count", Value: int64(1)})
	}
	w.Python("a", 1)
	s := Source{Project: project, JavaNames: []string{}, options: at(host)}
	f, err := s.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.unknownCount != 12 || len(f.unknown) != 10 || !strings.Contains(f.unknown[0], "GeneralCounterShard,mine0") || len(f.totals) != 1 {
		t.Errorf("got %d unknown, %q, totals %+v", f.unknownCount, f.unknown, f.totals)
	}
}

func TestSumsStayWithin64Bits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		counts []int64
		ok     bool
	}{
		{[]int64{math.MaxInt64, 0}, true}, {[]int64{math.MaxInt64, 1}, false}, {[]int64{math.MinInt64, -1}, false},
		{[]int64{math.MinInt64, math.MaxInt64, 1}, true},
	} {
		f := &found{totals: make(map[counter]*total)}
		var err error
		for _, n := range test.counts {
			err = errors.Join(err, f.add(datastore.NameKey(kindSimple, "1", nil), datastore.PropertyList{{Name: "count", Value: n}}))
		}
		if (err == nil) != test.ok {
			t.Errorf("%d: got error %v, want none: %t", test.counts, err, test.ok)
		}
	}
}

func TestASilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts connections and never answers
	s := Source{Project: "p", Silence: 200 * time.Millisecond, options: at(l.Addr().String())}
	if _, err = s.read(t.Context()); err == nil || !strings.Contains(err.Error(), "Datastore sent nothing for 200ms") {
		t.Errorf("got %v, want an error that it sent nothing", err)
	}
}
