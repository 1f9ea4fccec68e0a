package appengine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/datastore"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/transfer/appengine/gaetest"
)

// fill writes counters in every layout, and entities that fit none of them.
func fill(t *testing.T, host, project, namespace string) {
	t.Helper()
	w := gaetest.New(t, host, project, namespace)
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

var filled = []Total{
	{Go, "", 2, 110}, {Simple, "", 3, 1230}, {Java, "a/ü b", 1, 7}, {Go, "mended", 2, 17}, {DB, "old", 2, 30}, {DB, "old1", 1, 3},
	{Python, "page", 1, 5}, {Python, "page-7", 3, 42}, {Java, "same", 1, 100}, {JDO, "same", 2, 2}, {Java, "votes", 6, 21},
}

func TestEveryLayout(t *testing.T) {
	t.Parallel()
	for name, host := range map[string]string{"firestore": emulator.Firestore(t), "datastore": emulator.Datastore(t)} {
		for _, namespace := range []string{"", "elsewhere"} {
			project := emulator.Project()
			fill(t, host, project, namespace)
			var calls recorder
			var read atomic.Int64
			cfg := Config{Project: project, Namespace: namespace, Emulator: host, Read: func(n int) { read.Add(int64(n)) },
				options: dialOptions{grpc.WithChainUnaryInterceptor(calls.note)}}
			if name == "firestore" {
				if _, err := Read(t.Context(), cfg); !errors.Is(err, ErrNoKinds) {
					t.Errorf("kinds on the Firestore emulator: got error %v, want %v", err, ErrNoKinds)
				}
				cfg.JavaNames = javaNames
			}
			found, err := Read(t.Context(), cfg)
			if err != nil {
				t.Fatalf("%s %q: %v", name, namespace, err)
			}
			if diff := cmp.Diff(filled, found.Totals()); diff != "" {
				t.Errorf("%s %q: totals (-want +got):\n%s", name, namespace, diff)
			}
			if found.UnknownCount != 0 || read.Load() != 24 || found.Began.After(found.Ended) {
				t.Errorf("%s %q: got %d entities, unknown %v, %s to %s; want 24 and none", name, namespace, read.Load(), found.Unknown, found.Began, found.Ended)
			}
			if methods := calls.seen(); methods != "RunQuery" {
				t.Errorf("%s %q: it calls %s, want queries only", name, namespace, methods)
			}
			cfg.Namespace = "another"
			if found, err := Read(t.Context(), cfg); err != nil || len(found.Totals()) != 0 {
				t.Errorf("%s: another namespace holds %+v, %v", name, found.Totals(), err)
			}
		}
	}
}

// A recorder keeps the names of calls.
type recorder struct{ methods sync.Map }

func (r *recorder) note(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	r.methods.Store(path.Base(method), true)
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (r *recorder) seen() string {
	var all []string
	r.methods.Range(func(method, _ any) bool { all = append(all, method.(string)); return true })
	return strings.Join(all, " ")
}

func TestShardOf(t *testing.T) {
	t.Parallel()
	general := func(key string, properties ...any) entity {
		return entity{kind: kindGeneral, name: key, values: values(properties...)}
	}
	check := func(e entity, want string) {
		t.Helper()
		s, err := shardOf(e)
		got := fmt.Sprintf("%s %q %d", s.layout, s.name, s.count)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s %v: got %s, want %s", e, e.values, got, want)
		}
	}
	check(general("shard-a-b-12", "count", int64(3)), `python "a-b" 3`)
	check(general("shard--1-0", "count", int64(3)), `python "-1" 3`)
	check(general("shard-a-x", "count", int64(3)), errUnknown.Error())
	check(general("shard-a-1", "count", nil), "not an integer but <nil>")
	check(general("shard-a-1", "count", 1.5), "not an integer but 1.5")
	check(general("shard-a-1"), "not an integer")
	check(general("a12", "name", "a", "count", int64(3)), `db "a" 3`)
	check(general("a12", "name", "a1", "count", int64(3)), `db "a1" 3`)
	check(general("b12", "name", "a", "count", int64(3)), errUnknown.Error())
	check(general("shard3", "Name", "", "Count", int64(3)), `go "" 3`)
	check(general("shard3", "Name", "a", "Count", int64(3)), errUnknown.Error())
	check(general("a-shard3", "Name", "a", "Count", int64(3)), `go "a" 3`)
	check(general("x", "counterName", "a", "count", int64(3)), `jdo "a" 3`)
	check(entity{kind: "CounterShard_a", name: "x", values: values("count", int64(1))}, errUnknown.Error())
	check(entity{kind: "CounterShard_", name: "1", values: values("count", int64(1))}, `java "" 1`)
	check(entity{kind: kindSimple, name: "1", child: true, values: values("count", int64(1))}, "has a parent")
}

func values(properties ...any) map[string]any {
	all := make(map[string]any)
	for i := 0; i < len(properties); i += 2 {
		all[properties[i].(string)] = properties[i+1]
	}
	return all
}

func TestUnknownEntitiesAreNamed(t *testing.T) {
	t.Parallel()
	host, project := emulator.Firestore(t), emulator.Project()
	w := gaetest.New(t, host, project, "")
	for i := range 12 {
		w.Put(kindGeneral, fmt.Sprintf("mine%d", i), 0, datastore.Property{Name: "count", Value: int64(1)})
	}
	w.Python("a", 1)
	found, err := Read(t.Context(), Config{Project: project, Emulator: host, JavaNames: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if found.UnknownCount != 12 || len(found.Unknown) != 10 || !strings.Contains(found.Unknown[0], "GeneralCounterShard,mine0") || len(found.Totals()) != 1 {
		t.Errorf("got %d unknown, %q, totals %+v", found.UnknownCount, found.Unknown, found.Totals())
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
		found := &Found{totals: make(map[counter]*Total)}
		var err error
		for _, n := range test.counts {
			err = errors.Join(err, found.add(shard{Python, "a", n}))
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
	_, err = Read(t.Context(), Config{Project: "p", Emulator: l.Addr().String(), Silence: 200 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "Datastore sent nothing for 200ms") {
		t.Errorf("got %v, want an error that it sent nothing", err)
	}
}
