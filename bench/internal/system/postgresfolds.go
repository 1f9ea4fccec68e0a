package system

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// postgresUp is `countmill up` over PostgreSQL.
type postgresUp struct {
	pgServer
	httpBus
}

func (u *postgresUp) open(ctx context.Context, at Place) error {
	if err := u.pgServer.open(ctx, at); err != nil {
		return err
	}
	return u.httpBus.open(ctx, at, false, "--store", u.url, "--create")
}

func (u *postgresUp) Close() {
	u.httpBus.Close()
	u.pgServer.Close()
}

// postgresFolds is countmill's store over PostgreSQL alone.
type postgresFolds struct {
	pgServer
	store *postgres.Store
}

func (f *postgresFolds) open(ctx context.Context, at Place) (err error) {
	if err = f.pgServer.open(ctx, at); err != nil {
		return err
	}
	if f.store, err = postgres.Open(ctx, postgres.Config{URL: f.url, Create: true}); err != nil {
		return err
	}
	f.add(func() { _ = f.store.Close() })
	adds := make([]store.ShardDelta, len(at.Load.Names)) // all rows exist
	for i, name := range at.Load.Names {
		adds[i] = store.NewShardDelta(name, 0, 0)
	}
	sortAdds(adds)
	for lot := range slices.Chunk(adds, foldRows) {
		if _, err := f.store.Fold(ctx, &store.Commit{Rules: store.AnyRules, Adds: lot}); err != nil {
			return err
		}
	}
	_, err = f.pool.Exec(ctx, "vacuum analyze")
	return err
}

func sortAdds(adds []store.ShardDelta) {
	slices.SortFunc(adds, func(a, b store.ShardDelta) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), strings.Compare(a.Counter, b.Counter))
	})
}

// Count folds. A run of minutes also removes markers, which then expire after one minute, and prints the size of the tables every minute.
func (f *postgresFolds) Count(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	ctx, stop := context.WithCancelCause(ctx)
	watching, end := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() {
		err := f.watch(watching, r)
		if err != nil {
			stop(err)
		}
		watched <- err
	}()
	err := r.Walk(ctx, foldConns, foldRows, func(ctx context.Context, _, _ int, order []uint32) error {
		adds := make([]store.ShardDelta, len(order))
		for i, n := range order {
			adds[i] = store.NewShardDelta(r.Names[n], 0, 1)
		}
		sortAdds(adds)
		c := &store.Commit{Rules: store.AnyRules}
		for _, a := range adds {
			if n := len(c.Adds); n > 0 && c.Adds[n-1].Counter == a.Counter {
				c.Adds[n-1].Delta++
			} else {
				c.Adds = append(c.Adds, a)
			}
		}
		now := time.Now()
		for range (len(c.Adds) + 23) / 24 {
			c.Markers = append(c.Markers, store.Marker{ID: wire.RandomID(rand.Reader, wire.AnonymousClass), At: now, ExpireAt: now.Add(time.Minute)})
		}
		_, err := f.store.Fold(ctx, c)
		return err
	})
	end()
	return cmp.Or(<-watched, err)
}

func (f *postgresFolds) watch(ctx context.Context, r *load.Run) error {
	const stats = `select format('%s adds/s; shards %s MB, their indexes %s MB, dead rows %s, updates in the page %s %%, vacuums %s; markers %s MB, indexes %s MB, dead rows %s, vacuums %s',
		$1::bigint, pg_relation_size(s.relid) >> 20, pg_indexes_size(s.relid) >> 20, s.n_dead_tup, s.n_tup_hot_upd * 100 / greatest(s.n_tup_upd, 1), s.autovacuum_count,
		pg_relation_size(m.relid) >> 20, pg_indexes_size(m.relid) >> 20, m.n_dead_tup, m.autovacuum_count)
		from pg_stat_user_tables s, pg_stat_user_tables m where s.relname = 'shard' and m.relname = 'marker'`
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	var rates []float64
	for last := int64(0); ; {
		select {
		case <-ctx.Done():
			if n := len(rates); n > 9 {
				first, last := mean(rates[:n/10]), mean(rates[n-n/10:])
				r.Note("first_tenth", first)
				r.Note("last_tenth", last)
				r.Note("last_over_first_tenth", last/first)
			}
			return nil
		case <-tick.C:
		}
		done := r.Walked()
		rates, last = append(rates, float64(done-last)/60), done
		var line string
		err := f.pool.QueryRow(ctx, stats, int64(rates[len(rates)-1])).Scan(&line)
		if err == nil {
			fmt.Fprintf(os.Stderr, "%s, minute %d: %s\n", r.Name, len(rates), line)
			err = f.store.Sweep(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func mean(of []float64) (sum float64) {
	for _, x := range of {
		sum += x / float64(len(of))
	}
	return sum
}

// Check reads every shard.
func (f *postgresFolds) Check(ctx context.Context, r *load.Run) error {
	return f.check(ctx, r, "select name, f_count + (f_count_high << 32) from countmill.shard where name = any($1)")
}
