package datastore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/reader"
)

// The versions of what this package writes. One that does not know a database's version
// refuses it, and stops where it has the database open. A database is of version 2 from the
// first reset on: older versions would not take the baseline off, nor see that a counter is
// deleted.
const (
	firstFormat = 1
	format      = 2
)

var metaRef = ref{kindMeta, "meta"}

// readMeta refuses a database that is not ours, and makes the meta record where that was
// asked for.
func (s *Store) readMeta(ctx context.Context) error {
	id, _, err := s.lookupMeta(ctx)
	if err != nil {
		return err
	}
	if id == "" {
		if !s.cfg.Create {
			return fmt.Errorf("%w: %s has no meta record, so it is not countmill's yet: open it once with --create", aggregator.ErrDeployment, s.cfg)
		}
		if id, err = s.createMeta(ctx); err != nil {
			return err
		}
	}
	s.id = id
	return nil
}

// lookupMeta returns the id of the database, empty where it has none, and its time, zero
// where it does not tell it.
func (s *Store) lookupMeta(ctx context.Context) (_ string, at time.Time, _ error) {
	resp, err := s.stub.Lookup(ctx, &pb.LookupRequest{
		ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, Keys: []*pb.Key{s.key(metaRef)},
	})
	if err != nil {
		return "", at, s.explain("look the meta record up", err)
	}
	if s.id == "" {
		s.unpinned = resp.GetReadTime() == nil
	}
	if read := resp.GetReadTime(); read != nil {
		at = read.AsTime()
	}
	if len(resp.GetDeferred()) > 0 {
		return "", at, fmt.Errorf("%s: the server deferred the meta record", s.cfg)
	}
	if len(resp.GetFound()) == 0 {
		return "", at, nil
	}
	f := fields{entity: resp.GetFound()[0].GetEntity()}
	version, id := f.integer("format"), f.text("id")
	switch {
	case f.err != nil:
		return "", at, fmt.Errorf("%w: %s: %w", aggregator.ErrDeployment, s.cfg, f.err)
	case version > format:
		return "", at, fmt.Errorf("%w: %s was written by a newer version of countmill: run that version or a later one", aggregator.ErrDeployment, s.cfg)
	case version < 1 || id == "":
		return "", at, fmt.Errorf("%w: %s: its meta record names format %d and id %q", aggregator.ErrDeployment, s.cfg, version, id)
	}
	return id, at, nil
}

// createMeta makes the record, or finds the one of a process that was quicker.
func (s *Store) createMeta(ctx context.Context) (string, error) {
	var b [16]byte
	_, _ = rand.Read(b[:])
	id := hex.EncodeToString(b[:])
	_, err := s.commitOnce(ctx, []*pb.Mutation{{Operation: &pb.Mutation_Insert{Insert: &pb.Entity{
		Key: s.key(metaRef), Properties: map[string]*pb.Value{"format": integer(firstFormat), "id": text(id), "created": instant(now())},
	}}}})
	if err == nil {
		s.cfg.Logger.Info("meta record made", "store", s.cfg.String(), "id", id)
		return id, nil
	}
	if status.Code(err) != codes.AlreadyExists {
		return "", s.explain("make the meta record", err)
	}
	id, _, err = s.lookupMeta(ctx)
	if err == nil && id == "" {
		err = fmt.Errorf("%w: %s: the meta record comes and goes", aggregator.ErrDeployment, s.cfg)
	}
	return id, err
}

// Check compares the meta record with the one that was opened. One that is gone or has
// changed is another database: an emulator that was restarted empty, a restored backup.
// It returns the database's time, zero from a server that does not tell it.
func (s *Store) Check(ctx context.Context) (time.Time, error) {
	ctx, cancel, err := s.bound(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer cancel()
	return s.compareMeta(ctx)
}

func (s *Store) compareMeta(ctx context.Context) (at time.Time, err error) {
	id, at, err := s.lookupMeta(ctx)
	switch {
	case err != nil:
		return at, err
	case id == "":
		return at, fmt.Errorf("%w: %w: the meta record of %s is gone: this is not the database that was opened, or it was emptied; start again only if that is meant",
			aggregator.ErrDeployment, reader.ErrOtherDatabase, s.cfg)
	case id != s.id:
		return at, fmt.Errorf("%w: %w: the meta record of %s has changed from id %s to %s: this is not the database that was opened; start again only if that is meant",
			aggregator.ErrDeployment, reader.ErrOtherDatabase, s.cfg, s.id, id)
	}
	return at, nil
}
