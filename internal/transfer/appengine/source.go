//go:build !nogoogle

package appengine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// parallel is the number of kinds that are read at once: in the layout java every counter is a kind.
const parallel = 8

// Read reads all counters of the database.
func Read(ctx context.Context, cfg Config) (*Found, error) {
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.conn.Close()
	kinds, err := s.kinds(ctx)
	if err != nil {
		return nil, err
	}
	found := &Found{Began: time.Now().UTC(), totals: make(map[counter]*Total)}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, kind := range kinds {
		g.Go(func() error { return s.shards(ctx, kind, found) })
	}
	err = g.Wait()
	found.Ended = time.Now().UTC()
	return found, err
}

type source struct {
	conn *grpc.ClientConn
	stub pb.DatastoreClient
	cfg  Config
}

func open(ctx context.Context, cfg Config) (*source, error) {
	conn, err := dial(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("Datastore: %w; run `gcloud auth application-default login`, or set DATASTORE_EMULATOR_HOST for an emulator", err)
	}
	if cfg.Silence <= 0 {
		cfg.Silence = time.Minute
	}
	return &source{conn, pb.NewDatastoreClient(conn), cfg}, nil
}

// kinds returns the kinds that contain shards.
func (s *source) kinds(ctx context.Context) ([]string, error) {
	all := []string{kindGeneral, kindSimple}
	if s.cfg.JavaNames != nil {
		for _, name := range s.cfg.JavaNames {
			all = append(all, kindJava+name)
		}
		return all, nil
	}
	query := &pb.Query{
		Kind:       []*pb.KindExpression{{Name: "__kind__"}},
		Projection: []*pb.Projection{{Property: &pb.PropertyReference{Name: "__key__"}}},
		Filter:     &pb.Filter{FilterType: &pb.Filter_PropertyFilter{PropertyFilter: s.from("__kind__", kindJava)}},
	}
	err := s.each(ctx, query, func(e entity) error {
		if !strings.HasPrefix(e.name, kindJava) {
			return errEnough
		}
		all = append(all, e.name)
		return nil
	})
	if status.Code(err) == codes.InvalidArgument {
		err = fmt.Errorf("%w: %w", ErrNoKinds, err)
	}
	return all, err
}

var errEnough = errors.New("enough")

// from returns a filter for the keys of a kind from name on.
func (s *source) from(kind, name string) *pb.PropertyFilter {
	key := &pb.Key{
		PartitionId: s.partition(),
		Path:        []*pb.Key_PathElement{{Kind: kind, IdType: &pb.Key_PathElement_Name{Name: name}}},
	}
	return &pb.PropertyFilter{
		Property: &pb.PropertyReference{Name: "__key__"},
		Op:       pb.PropertyFilter_GREATER_THAN_OR_EQUAL,
		Value:    &pb.Value{ValueType: &pb.Value_KeyValue{KeyValue: key}},
	}
}

func (s *source) partition() *pb.PartitionId {
	return &pb.PartitionId{ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, NamespaceId: s.cfg.Namespace}
}

// shards adds the shards of a kind.
func (s *source) shards(ctx context.Context, kind string, found *Found) error {
	return s.each(ctx, &pb.Query{Kind: []*pb.KindExpression{{Name: kind}}}, func(e entity) error {
		if s.cfg.Read != nil {
			s.cfg.Read(1)
		}
		shard, err := shardOf(e)
		if err != nil {
			found.unknown(fmt.Sprintf("%s: %v", e, err))
			return nil
		}
		return found.add(shard)
	})
}

// each calls do with all results of a query, until errEnough.
func (s *source) each(ctx context.Context, query *pb.Query, do func(entity) error) error {
	for {
		batch, err := s.page(ctx, query)
		if err != nil {
			return err
		}
		for _, result := range batch.GetEntityResults() {
			if err := do(entityOf(result.GetEntity())); errors.Is(err, errEnough) {
				return nil
			} else if err != nil {
				return err
			}
		}
		if batch.GetMoreResults() != pb.QueryResultBatch_NOT_FINISHED {
			return nil
		}
		if len(batch.GetEndCursor()) == 0 {
			return errors.New("reading Datastore: an answer has more results and no cursor")
		}
		query.StartCursor = batch.GetEndCursor()
	}
}

// page returns the results of a query from its start cursor on. Datastore decides how many.
func (s *source) page(ctx context.Context, query *pb.Query) (*pb.QueryResultBatch, error) {
	silent := fmt.Errorf("Datastore sent nothing for %s", s.cfg.Silence)
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Silence, silent)
	defer cancel()
	answer, err := s.stub.RunQuery(ctx, &pb.RunQueryRequest{
		ProjectId:   s.cfg.Project,
		DatabaseId:  s.cfg.Database,
		PartitionId: s.partition(),
		QueryType:   &pb.RunQueryRequest_Query{Query: query},
	})
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, fmt.Errorf("reading Datastore: %w", err)
	}
	return answer.GetBatch(), nil
}
