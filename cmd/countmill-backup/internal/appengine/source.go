package appengine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/datastore"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	parallel     = 8         // kinds that are read at once: in the layout java every counter is a kind
	maxTotals    = 5_000_000 // bounds memory: some 200 bytes each
	unknownShown = 10        // entities that are named although they are not shards
)

// A Source is one namespace of a database.
type Source struct {
	// Project is the id of the Google Cloud project. Required.
	Project string
	// Database is the id of the database. Default "", the project's default database.
	Database string
	// Namespace is the namespace of the counters. Default "".
	Namespace string
	// JavaNames are the counters of the layout java. Default nil: all counters, which requires a query
	// of kinds.
	JavaNames []string
	// Silence is the longest wait for more of an answer. Default 2m.
	Silence time.Duration

	options []option.ClientOption // for tests
}

// A counter is a counter of the source. Its name is empty for a grand total.
type counter struct {
	layout layout
	name   string
}

// A shard is the content of one entity. name is empty if the entity names no counter.
type shard struct {
	layout layout
	name   string
	count  int64
}

// A total is the sum of a counter's shards.
type total struct {
	counter
	shards int
	sum    int64
}

// found is the content of a source.
type found struct {
	began, ended time.Time

	// unknown says why the first of the unknownCount entities are not shards.
	unknown      []string
	unknownCount int

	mu     sync.Mutex // several goroutines add shards
	totals map[counter]*total
}

// add adds an entity to its counter.
func (f *found) add(key *datastore.Key, properties datastore.PropertyList) error {
	s, err := shardOf(key, properties)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		if f.unknownCount++; len(f.unknown) < unknownShown {
			f.unknown = append(f.unknown, fmt.Sprintf("%s: %v", key, err))
		}
		return nil
	}
	c := counter{s.layout, s.name}
	t := f.totals[c]
	if t == nil {
		if len(f.totals) == maxTotals {
			return fmt.Errorf("there are too many counters (limit: %d in one namespace)", maxTotals)
		}
		t = &total{counter: c}
		f.totals[c] = t
	}
	t.shards++
	if t.sum, err = plus(t.sum, s.count); err != nil {
		return fmt.Errorf("the shards of the %s counter %q: %w", s.layout, s.name, err)
	}
	return nil
}

// ordered returns the totals by name and layout.
func (f *found) ordered() []*total {
	return slices.SortedFunc(maps.Values(f.totals), func(a, b *total) int {
		return strings.Compare(a.name+"\x00"+string(a.layout), b.name+"\x00"+string(b.layout))
	})
}

// read reads all counters of the source.
func (s *Source) read(ctx context.Context) (*found, error) {
	client, err := datastore.NewClientWithDatabase(ctx, s.Project, s.Database, s.options...)
	if err != nil {
		return nil, fmt.Errorf("Datastore: %w; run `gcloud auth application-default login`, or set DATASTORE_EMULATOR_HOST for an emulator", err)
	}
	defer client.Close()
	kinds, err := s.kinds(ctx, client)
	if err != nil {
		return nil, err
	}
	f := &found{began: time.Now().UTC(), totals: make(map[counter]*total)}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, kind := range kinds {
		g.Go(func() error { return s.each(ctx, client, datastore.NewQuery(kind), f.add) })
	}
	err = g.Wait()
	f.ended = time.Now().UTC()
	return f, err
}

// errNoKinds means that the server answers no query of kinds.
var errNoKinds = errors.New("the server does not list its kinds")

// kinds returns the kinds that contain shards.
func (s *Source) kinds(ctx context.Context, client *datastore.Client) ([]string, error) {
	all := []string{kindGeneral, kindSimple}
	if s.JavaNames != nil {
		for _, name := range s.JavaNames {
			all = append(all, kindJava+name)
		}
		return all, nil
	}
	// The names that begin with CounterShard_: ` follows _.
	from := datastore.NameKey("__kind__", kindJava, nil)
	to := datastore.NameKey("__kind__", strings.TrimSuffix(kindJava, "_")+"`", nil)
	from.Namespace, to.Namespace = s.Namespace, s.Namespace
	query := datastore.NewQuery("__kind__").KeysOnly().FilterField("__key__", ">=", from).FilterField("__key__", "<", to)
	err := s.each(ctx, client, query, func(key *datastore.Key, _ datastore.PropertyList) error {
		all = append(all, key.Name)
		return nil
	})
	if status.Code(err) == codes.InvalidArgument {
		err = fmt.Errorf(`%w: %w; name Java's counters with --java, or pass --java "" for none`, errNoKinds, err)
	}
	return all, err
}

// each calls do with all results of a query.
func (s *Source) each(ctx context.Context, client *datastore.Client, query *datastore.Query, do func(*datastore.Key, datastore.PropertyList) error) error {
	silence := s.Silence
	if silence <= 0 {
		silence = 2 * time.Minute
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() { cancel(fmt.Errorf("Datastore sent nothing for %s", silence)) })
	defer timer.Stop()
	results := client.Run(ctx, query.Namespace(s.Namespace))
	for {
		var properties datastore.PropertyList
		key, err := results.Next(&properties)
		if errors.Is(err, iterator.Done) {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return fmt.Errorf("reading Datastore: %w", err)
		}
		timer.Reset(silence)
		if err := do(key, properties); err != nil {
			return err
		}
	}
}
