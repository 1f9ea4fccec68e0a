package datastore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/store"
)

// format is the format of all data of this package. A process refuses to open a database of another
// format, and stops if the format changes while it has the database open.
const format = 3

var metaRef = ref{kindMeta, "meta"}

// A metaRecord is the meta record.
type metaRecord struct {
	id       string
	settings store.Settings // at the time when they were written
	cacheKey []byte         // 32 random bytes
}

// readMeta refuses a database of another program, and makes the meta record if Config.Create is set.
func (s *Store) readMeta(ctx context.Context) error {
	m, at, err := s.lookupMeta(ctx)
	switch {
	case err != nil:
		return err
	case m.id == "" && !s.cfg.Create:
		return fmt.Errorf("%w: %s has no meta record, so countmill has not used it yet: open it once with --create", store.ErrDeployment, s.cfg)
	case m.id == "":
		m, err = s.createMeta(ctx, at)
	}
	if err != nil {
		return err
	}
	s.id = m.id
	s.identity = identityOf(s.cfg, &m)
	return nil
}

// lookupMeta returns the meta record and the database's time. Without a record, its id is empty.
func (s *Store) lookupMeta(ctx context.Context) (m metaRecord, at time.Time, _ error) {
	resp, err := s.stub.Lookup(ctx, &pb.LookupRequest{
		ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, Keys: []*pb.Key{s.key(metaRef)},
	})
	if err != nil {
		return m, at, s.explain("look up the meta record", err)
	}
	if err := s.timed(resp.GetReadTime()); err != nil {
		return m, at, err
	}
	at = resp.GetReadTime().AsTime()
	if len(resp.GetDeferred()) > 0 {
		return m, at, fmt.Errorf("%s: the server deferred the meta record", s.cfg)
	}
	if len(resp.GetFound()) == 0 {
		return m, at, nil
	}
	m, err = s.metaOf(resp.GetFound()[0].GetEntity())
	return m, at, err
}

// metaOf refuses a record of another format.
func (s *Store) metaOf(e *pb.Entity) (m metaRecord, _ error) {
	f := fields{entity: e}
	version := f.integer("format")
	m.id, m.settings, m.cacheKey = f.text("id"), settingsOf(&f), f.blob("cache_key")
	switch {
	case 0 < version && version < format:
		return m, fmt.Errorf("%w: %s was written by countmill before its first release (format %d, this is %d): use another namespace or database", store.ErrDeployment, s.cfg, version, format)
	case version > format: // whatever else the record contains
		return m, fmt.Errorf("%w: %s was written by a newer version of countmill: run that version or a later one", store.ErrDeployment, s.cfg)
	case f.err != nil:
		return m, fmt.Errorf("%w: %s: %w", store.ErrDeployment, s.cfg, f.err)
	case version < 1 || m.id == "" || len(m.cacheKey) != 32:
		return m, fmt.Errorf("%w: %s: its meta record names format %d, id %q and a key of %d bytes", store.ErrDeployment, s.cfg, version, m.id, len(m.cacheKey))
	}
	return m, nil
}

// createMeta makes the record, or returns the record of a process that was faster.
func (s *Store) createMeta(ctx context.Context, at time.Time) (metaRecord, error) {
	var b [16]byte
	_, _ = rand.Read(b[:])
	m := metaRecord{id: hex.EncodeToString(b[:]), settings: store.NewSettings(s.cfg.Window, at), cacheKey: make([]byte, 32)}
	_, _ = rand.Read(m.cacheKey)
	properties := map[string]*pb.Value{
		"format": integer(format), "id": text(m.id), "created": instant(now()), "cache_key": blob(m.cacheKey),
	}
	maps.Copy(properties, settingsProperties(m.settings))
	_, err := s.commitOnce(ctx, []*pb.Mutation{{Operation: &pb.Mutation_Insert{Insert: &pb.Entity{
		Key: s.key(metaRef), Properties: properties,
	}}}})
	if err == nil {
		s.cfg.Logger.Info("meta record made", "store", s.cfg.String(), "id", m.id, "window", s.cfg.Window)
		return m, nil
	}
	if status.Code(err) != codes.AlreadyExists {
		return m, s.explain("make the meta record", err)
	}
	m, _, err = s.lookupMeta(ctx)
	if err == nil && m.id == "" {
		err = fmt.Errorf("%w: %s: the meta record appears and disappears", store.ErrDeployment, s.cfg)
	}
	return m, err
}

// changeMeta makes one attempt at a transaction that changes properties of the meta record, and removes
// entities with it. If plan returns no properties, it writes nothing.
func (s *Store) changeMeta(ctx context.Context, removed []ref, plan func(m metaRecord, when time.Time) (map[string]*pb.Value, error)) error {
	return s.readModifyWrite(ctx, []ref{metaRef}, func(found map[ref]*pb.Entity, when time.Time) ([]*pb.Mutation, error) {
		m, err := s.metaAmong(found)
		if err != nil {
			return nil, err
		}
		changes, err := plan(m, when)
		if err != nil || len(changes) == 0 {
			return nil, err
		}
		mutations := []*pb.Mutation{s.rewrite(found[metaRef], changes)}
		for _, r := range removed {
			mutations = append(mutations, s.remove(r))
		}
		return mutations, nil
	})
}

// metaIn reads the meta record in a transaction, which fails if the record changes before it commits.
func (s *Store) metaIn(ctx context.Context, tx []byte) (m metaRecord, err error) {
	found, _, err := s.lookupIn(ctx, tx, []ref{metaRef})
	if err != nil {
		return m, s.explain("read the meta record in a transaction", err)
	}
	return s.metaAmong(found)
}

func (s *Store) metaAmong(found map[ref]*pb.Entity) (m metaRecord, err error) {
	if found[metaRef] == nil {
		return m, s.another("is gone")
	}
	return s.metaOf(found[metaRef])
}

// rules reads the rules in force.
func (s *Store) rules(ctx context.Context) (*store.Rules, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	m, _, err := s.compareMeta(ctx)
	return m.settings.Rules, err
}

// Check compares the meta record with the one found by Open. If it is missing or has changed, the
// database is another one, for example an emulator that was restarted empty, or a restored backup.
// Check returns the database's time, and the settings at that time.
func (s *Store) Check(ctx context.Context) (store.Checked, error) {
	ctx, cancel, err := s.bound(ctx)
	if err != nil {
		return store.Checked{}, err
	}
	defer cancel()
	m, at, err := s.compareMeta(ctx)
	if err != nil {
		return store.Checked{}, err
	}
	return store.Checked{At: at, Settings: m.settings.At(at)}, nil
}

func (s *Store) compareMeta(ctx context.Context) (m metaRecord, at time.Time, err error) {
	if m, at, err = s.lookupMeta(ctx); err == nil {
		err = s.compare(&m)
	}
	return m, at, err
}

func (s *Store) compare(m *metaRecord) error {
	switch {
	case m.id == "":
		return s.another("is gone")
	case m.id != s.id:
		return s.another(fmt.Sprintf("has changed from id %s to %s", s.id, m.id))
	}
	return nil
}

func (s *Store) another(what string) error {
	return fmt.Errorf("%w: %w: the meta record of %s %s: this is not the database that was opened, or it was emptied; restart only if that is intended",
		store.ErrDeployment, store.ErrOtherDatabase, s.cfg, what)
}
