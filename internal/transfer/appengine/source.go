//go:build !nogoogle

package appengine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/datastore"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// clientOptions are options of Google's client.
type clientOptions = []option.ClientOption

// parallel is the number of kinds that are read at once: in the layout java every counter is a kind.
const parallel = 8

// Read reads all counters of the database.
func Read(ctx context.Context, cfg Config) (*Found, error) {
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.client.Close()
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
	client *datastore.Client
	cfg    Config
}

func open(ctx context.Context, cfg Config) (*source, error) {
	options := cfg.options
	if cfg.Emulator != "" {
		options = append(options, option.WithEndpoint(strings.TrimPrefix(cfg.Emulator, "http://")), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	client, err := datastore.NewClientWithDatabase(ctx, cfg.Project, cfg.Database, options...)
	if err != nil {
		return nil, fmt.Errorf("Datastore: %w; run `gcloud auth application-default login`, or set DATASTORE_EMULATOR_HOST for an emulator", err)
	}
	if cfg.Silence <= 0 {
		cfg.Silence = time.Minute
	}
	return &source{client, cfg}, nil
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
	first := datastore.NameKey("__kind__", kindJava, nil)
	first.Namespace = s.cfg.Namespace
	query := datastore.NewQuery("__kind__").FilterField("__key__", ">=", first).KeysOnly()
	err := s.each(ctx, query, func(key *datastore.Key, _ datastore.PropertyList) error {
		if !strings.HasPrefix(key.Name, kindJava) {
			return errEnough
		}
		all = append(all, key.Name)
		return nil
	})
	if status.Code(err) == codes.InvalidArgument {
		err = fmt.Errorf("%w: %w", ErrNoKinds, err)
	}
	return all, err
}

var errEnough = errors.New("enough")

// shards adds the shards of a kind.
func (s *source) shards(ctx context.Context, kind string, found *Found) error {
	return s.each(ctx, datastore.NewQuery(kind), func(key *datastore.Key, properties datastore.PropertyList) error {
		if s.cfg.Read != nil {
			s.cfg.Read(1)
		}
		shard, err := shardOf(key, properties)
		if err != nil {
			found.unknown(fmt.Sprintf("%s: %v", key, err))
			return nil
		}
		return found.add(shard)
	})
}

// each calls do with all results of a query, until errEnough.
func (s *source) each(ctx context.Context, query *datastore.Query, do func(*datastore.Key, datastore.PropertyList) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(s.cfg.Silence, func() {
		cancel(fmt.Errorf("Datastore sent nothing for %s", s.cfg.Silence))
	})
	defer silence.Stop()
	for it := s.client.Run(ctx, query.Namespace(s.cfg.Namespace)); ; {
		var properties datastore.PropertyList
		key, err := it.Next(&properties)
		if errors.Is(err, iterator.Done) {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return fmt.Errorf("reading Datastore: %w", err)
		}
		silence.Reset(s.cfg.Silence)
		if err := do(key, properties); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
