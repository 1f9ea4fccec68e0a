package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
)

const (
	postgresConns = 16 // concurrent upserts, one a statement
	unnestConns   = 4
	unnestRows    = 10_000
	foldConns     = 8
	foldRows      = 400
)

func postgresSystems() []System {
	const ack = "committed, the WAL synced (synchronous_commit on); a repeat counts twice"
	const how = "postgres with shared_buffers 512MB, max_wal_size 4GB, fillfactor 70, on a unix socket, all rows exist; pgx, prepared; "
	const ours = "the same postgres; "
	system := func(name, ack, how string, open func() pgInstance) System {
		return System{
			Name: name, Ack: ack, How: how, Loads: names, Family: name, Against: "postgres/upsert", Version: postgresVersion,
			Open: func(ctx context.Context, at Place) (Instance, error) {
				i := open()
				return opened(i, i.open(ctx, at))
			},
		}
	}
	unnest := func(rows int) System {
		return system(fmt.Sprint("postgres/unnest/", rows), ack, how+fmt.Sprintf("%d increments a statement with unnest, summed by GROUP BY, %d connections", rows, unnestConns),
			func() pgInstance { return &pgStatements{batch: rows} })
	}
	return []System{
		system("postgres/upsert", ack, how+fmt.Sprintf("one upsert a statement, %d connections", postgresConns), func() pgInstance { return &pgStatements{batch: 1} }),
		unnest(foldRows), unnest(unnestRows),
		system("postgres/folds", "committed, the WAL synced, exactly once", ours+fmt.Sprintf("countmill's store in this process, commits of the sums of %d increments, a marker for each 24 counters, %d at once", foldRows, foldConns),
			func() pgInstance { return &postgresFolds{} }),
		system("postgres/up", "Flush has returned: committed, the WAL synced, counted exactly once, in the total", ours+"publisher in this process, `countmill up --store postgres://` in another",
			func() pgInstance { return &postgresUp{} }),
	}
}

type pgInstance interface {
	Instance
	open(ctx context.Context, at Place) error
}

func postgresVersion() (string, error) {
	path, err := postgresProgram("postgres")
	if err != nil {
		return "", err
	}
	if _, err := postgresProgram("initdb"); err != nil {
		return "", err
	}
	return server.Says(path, "--version")
}

func postgresProgram(name string) (string, error) {
	return server.Find(name, "/usr/lib/postgresql/*/bin/"+name)
}

// pgServer is a server.
type pgServer struct {
	closers
	url  string
	pool *pgxpool.Pool
}

func (p *pgServer) open(ctx context.Context, at Place) error {
	user, err := server.Unprivileged("postgres")
	if err != nil {
		return err
	}
	data, err := initDB(ctx, at.Dir, user)
	if err != nil {
		return err
	}
	path, err := postgresProgram("postgres")
	if err != nil {
		return err
	}
	p.url = "postgres:///postgres?user=bench&host=" + data
	if p.pool, err = pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", p.url, postgresConns)); err != nil {
		return err
	}
	p.add(p.pool.Close)
	process, err := server.Start(ctx, server.Spec{
		Name: "postgres", Path: path, Dir: at.Dir, User: user, Signal: syscall.SIGINT, // do not wait for clients
		Args: []string{"-D", data, "-k", data, "-c", "listen_addresses=", "-c", "shared_buffers=512MB", "-c", "max_wal_size=4GB",
			"-c", "synchronous_commit=on", "-c", "fsync=on"},
		Ready: p.pool.Ping,
	})
	if err != nil {
		return err
	}
	p.add(process.Stop)
	return nil
}

func initDB(ctx context.Context, dir string, user *server.User) (data string, err error) {
	path, err := postgresProgram("initdb")
	if err != nil {
		return "", err
	}
	data = filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return "", err
	}
	cmd := exec.Command(path, "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync")
	cmd.Dir = dir
	if user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user.UID, Gid: user.GID}}
		if err := os.Chown(data, int(user.UID), int(user.GID)); err != nil {
			return "", err
		}
	}
	_, err = server.Output(ctx, cmd)
	return data, err
}

// pgStatements counts in a table by SQL.
type pgStatements struct {
	pgServer
	batch int
}

func (p *pgStatements) open(ctx context.Context, at Place) error {
	if err := p.pgServer.open(ctx, at); err != nil {
		return err
	}
	_, err := p.pool.Exec(ctx, "CREATE TABLE counters (name text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 70)")
	if err == nil { // all rows exist
		_, err = p.pool.Exec(ctx, "INSERT INTO counters SELECT name, 0 FROM unnest($1::text[]) AS name", at.Load.Names)
	}
	if err == nil {
		_, err = p.pool.Exec(ctx, "VACUUM ANALYZE")
	}
	return err
}

// Statements that add to several counters lock their rows in one order. Otherwise they would wait for
// each other in a ring.
const (
	upsert = "INSERT INTO counters AS c (name, n) VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = c.n + 1"
	unnest = `INSERT INTO counters AS c (name, n) SELECT name, count(*) FROM unnest($1::text[]) AS name GROUP BY name ORDER BY name
		ON CONFLICT (name) DO UPDATE SET n = c.n + excluded.n`
)

// Count runs statements.
func (p *pgStatements) Count(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	if p.batch == 1 {
		return r.Walk(ctx, postgresConns, 1, func(ctx context.Context, _, _ int, order []uint32) error {
			_, err := p.pool.Exec(ctx, upsert, r.Names[order[0]])
			return err
		})
	}
	batches := make([][]string, unnestConns)
	for i := range batches {
		batches[i] = make([]string, p.batch)
	}
	return r.Walk(ctx, unnestConns, p.batch, func(ctx context.Context, worker, _ int, order []uint32) error {
		for i, n := range order {
			batches[worker][i] = r.Names[n]
		}
		_, err := p.pool.Exec(ctx, unnest, batches[worker])
		return err
	})
}

// Check reads every row.
func (p *pgStatements) Check(ctx context.Context, r *load.Run) error {
	return p.check(ctx, r, "SELECT name, n FROM counters WHERE name = ANY($1)")
}

func (p *pgServer) check(ctx context.Context, r *load.Run, sql string) error {
	return r.Check(ctx, func(ctx context.Context, names []string) ([]int64, error) {
		rows, err := p.pool.Query(ctx, sql, names)
		if err != nil {
			return nil, err
		}
		got := make(map[string]int64)
		var name string
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
			got[name] = n
			return nil
		})
		if len(got) > len(names) {
			err = errors.Join(err, errors.New("more rows than names"))
		}
		return inOrder(names, got), err
	})
}

func inOrder(names []string, totals map[string]int64) []int64 {
	all := make([]int64, len(names))
	for i, name := range names {
		all[i] = totals[name]
	}
	return all
}
