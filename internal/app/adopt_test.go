package app

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The SQL of the page works as it is written: a trigger is made and a table is adopted while others write it, roll back, also to savepoints, copy and
// truncate. At the end each total is the number of rows, whichever attempt to adopt has succeeded.
func TestAdoptionBesideWriters(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/howto/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, b := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(page, -1) {
		blocks = append(blocks, string(b[1]))
	}
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of SQL, want 3", len(blocks))
	}
	counting, trigger, adoption := blocks[0], blocks[1], blocks[2]
	server, ups := twoUps(t)
	ctx := t.Context()
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	conn := connect()
	do := func(sql string) {
		t.Helper()
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	do("create table comments (id bigint generated always as identity primary key, post bigint not null, text text)")
	do(counting) // without a trigger: this one counts once more below
	do("insert into comments (post) select i % 7 from generate_series(1, 2000) i")

	// Each writer does so many transactions before a step goes on.
	var writers sync.WaitGroup
	steps := make([]chan bool, 3)
	for i := range steps {
		steps[i] = make(chan bool)
		own := connect()
		random := mathrand.New(mathrand.NewPCG(uint64(i), 7))
		writers.Go(func() {
			for range steps[i] {
				if err := write(ctx, own, random); err != nil {
					t.Error(err)
				}
			}
		})
	}
	more := func(n int) {
		for range n {
			for _, s := range steps {
				s <- true
			}
		}
	}
	var feeding sync.WaitGroup
	beside := func(f func()) {
		feeding.Go(func() { more(30) })
		f()
		feeding.Wait()
	}
	more(10)
	beside(func() { do(trigger) })
	beside(func() { do("truncate comments") })
	beside(func() { do(strings.Replace(adoption, "commit;", "rollback;", 1)) })
	var applied, refused int
	beside(func() {
		var attempts sync.WaitGroup
		var mu sync.Mutex
		for range 3 {
			own := connect()
			attempts.Go(func() {
				_, err := own.PgConn().Exec(ctx, adoption).ReadAll()
				mu.Lock()
				defer mu.Unlock()
				if pg := new(pgconn.PgError); errors.As(err, &pg) && pg.Code == "23505" {
					refused++
				} else if err != nil {
					t.Error(err)
				} else {
					applied++
				}
			})
		}
		attempts.Wait()
	})
	if applied != 1 || refused != 2 {
		t.Errorf("%d adoptions applied and %d were refused, want 1 and 2", applied, refused)
	}
	beside(func() { do("truncate comments") })
	more(10)
	for _, s := range steps {
		close(s)
	}
	writers.Wait()

	// All are counted before totals are compared: increments that wait may sum to 0.
	ups[0].poll(t, "all increments to be counted", func() bool {
		var left int
		err := conn.QueryRow(ctx, "select (select count(*) from countmill.added) + (select count(*) from countmill.held)").Scan(&left)
		return err == nil && left == 0
	})
	for post := range int64(18) {
		var want int64
		if err := conn.QueryRow(ctx, "select count(*) + ($1 = 17)::int from comments where post = $1", post).Scan(&want); err != nil {
			t.Fatal(err)
		}
		for _, r := range ups {
			r.poll(t, fmt.Sprintf("post %d to have %d", post, want), func() bool {
				_, text := r.call(t, "GET", fmt.Sprintf("/v1/totals?counter=comments:post-%d", post), "")
				return strings.Contains(text, fmt.Sprintf(`"total":%d,`, want))
			})
		}
	}
}

var errUndone = errors.New("the caller gives up")

// write does a transaction with one to three changes, some of which are undone.
func write(ctx context.Context, conn *pgx.Conn, random *mathrand.Rand) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for range 1 + random.IntN(3) {
			undo := random.IntN(4) == 0
			err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
				post := random.IntN(7)
				var err error
				switch random.IntN(6) {
				case 0, 1:
					_, err = savepoint.Exec(ctx, "insert into comments (post) values ($1), ($1), ($2)", post, random.IntN(7))
				case 2:
					_, err = savepoint.CopyFrom(ctx, pgx.Identifier{"comments"}, []string{"post"}, pgx.CopyFromRows([][]any{{post}, {post}}))
				case 3: // rows that another transaction has locked are left alone: it may wait for one of this
					_, err = savepoint.Exec(ctx, "update comments set post = $1 where id in (select id from comments limit 3 for update skip locked)", post)
				case 4:
					_, err = savepoint.Exec(ctx, "delete from comments where id in (select id from comments where post = $1 limit 2 for update skip locked)", post)
				case 5:
					_, err = savepoint.Exec(ctx, "insert into comments (id, post) overriding system value values (1, $1) on conflict do nothing", post)
				}
				if err == nil && undo {
					return errUndone
				}
				return err
			})
			if err != nil && !errors.Is(err, errUndone) {
				return err
			}
		}
		if random.IntN(5) == 0 {
			return errUndone
		}
		return nil
	})
	if errors.Is(err, errUndone) {
		return nil
	}
	return err
}
