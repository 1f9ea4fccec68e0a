package datastore

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
)

// putMeta replaces the meta record, or removes it if properties is nil.
func putMeta(t *testing.T, s *Store, properties map[string]*pb.Value) {
	t.Helper()
	m := s.replace(metaRef, properties)
	if properties == nil {
		m = &pb.Mutation{Operation: &pb.Mutation_Delete{Delete: s.key(metaRef)}}
	}
	if _, err := s.commitOnce(t.Context(), []*pb.Mutation{m}); err != nil {
		t.Fatal(err)
	}
}

// metaProperties returns the properties of a meta record.
func metaProperties(id string) map[string]*pb.Value {
	properties := map[string]*pb.Value{"format": integer(format), "id": text(id), "cache_key": blob(make([]byte, 32))}
	maps.Copy(properties, settingsProperties(store.NewSettings(time.Hour, now())))
	return properties
}

// with returns the properties with one more, or another value for one.
func with(properties map[string]*pb.Value, name string, v *pb.Value) map[string]*pb.Value {
	properties[name] = v
	return properties
}

func TestMetaGoneOrChanged(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	for _, c := range []struct {
		properties map[string]*pb.Value
		says       string
	}{
		{nil, "another database"},
		{metaProperties("other"), "another database"},
		{map[string]*pb.Value{"format": integer(format + 1), "id": text(s.id)}, "newer version"},
		{with(metaProperties(s.id), "rules", text(`{"series":[],"boards":[]}`)), "rules that this version knows"},
		{with(metaProperties(s.id), "format", text("1")), "format"},
		{with(metaProperties(s.id), "cache_key", blob(make([]byte, 31))), "31 bytes"},
		{map[string]*pb.Value{"format": integer(format), "id": text(s.id)}, "version"},
		{map[string]*pb.Value{"format": integer(1), "id": text(s.id)}, "before its first release"},
		{map[string]*pb.Value{"format": integer(format - 1), "id": text(s.id)}, "before its first release"},
		{metaProperties(s.id), ""},
	} {
		putMeta(t, s, c.properties)
		_, err := s.Check(t.Context())
		switch {
		case c.says == "" && err != nil:
			t.Errorf("Check of the record as it was: %v", err)
		case c.says != "" && (!errors.Is(err, store.ErrDeployment) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("meta record %v: got error %v, want one that says %q", c.properties, err, c.says)
		}
		if other := c.says == "another database"; errors.Is(err, store.ErrOtherDatabase) != other {
			t.Errorf("meta record %v: got error %v, which is ErrOtherDatabase: %t", c.properties, err, !other)
		}
	}
}

func TestOpenRefusesNewerFormat(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	putMeta(t, s, map[string]*pb.Value{"format": integer(format + 1), "id": text("x")})
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("got error %v, want one about a newer version", err)
	}
}

// Without Create, Open does not make the meta record. Against an emulator it always does.
func TestCreate(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	putMeta(t, s, nil)
	s.cfg.Create, s.id = false, ""
	if err := s.readMeta(t.Context()); !errors.Is(err, store.ErrDeployment) || !strings.Contains(err.Error(), "--create") {
		t.Errorf("without Create: got error %v, want one that names --create", err)
	}
	if c := (Config{Project: "p", Endpoint: "x:443"}).withDefaults(); c.Create && c.Emulator == "" {
		t.Error("Create is on against the service")
	}
}

// Processes that start at once agree on one id, and each namespace has an id of its own.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	cfg.ReadOnly = true
	ids := make([]string, 5)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.ID()
			_ = s.Close()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("ids %q, want one", ids)
		}
	}
	cfg.Namespace = "other"
	if s := openStore(t, cfg); s.ID() == ids[0] {
		t.Errorf("two namespaces have the id %s", ids[0])
	}
}

// A restarted emulator is empty. No fold that reached it may count as applied, and no total may come
// from it, even before the next Check.
func TestServerComesBackEmpty(t *testing.T) {
	t.Parallel()
	before, after := &recorder{}, &recorder{empty: true}
	host, stop := serveOn(t, before, "127.0.0.1:0")
	s := openStore(t, Config{Project: "p-1", Emulator: host})
	fold := func() error {
		_, err := s.Fold(t.Context(), &store.Commit{Markers: []store.Marker{newMarker()}})
		return err
	}
	if err := fold(); err != nil {
		t.Fatalf("Fold: %v", err)
	}
	stop()
	serveOn(t, after, host)
	deadline := time.Now().Add(2 * time.Minute)
	err := fold()
	for ; !errors.Is(err, store.ErrDeployment) && time.Now().Before(deadline); err = fold() {
		if err == nil {
			t.Fatal("a fold went to the empty database")
		}
	}
	if !strings.Contains(err.Error(), "another database") {
		t.Errorf("Fold: got error %v, want one about another database", err)
	}
	v := s.View()
	if got, err := v.Lookup(t.Context(), []store.Key{{Counter: "a"}}); err == nil {
		t.Errorf("a total of the empty database: %v", got)
	}
}
