package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx of database/sql

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/postgres/addtx"
	"github.com/countmill/countmill/internal/testing/emulator"
)

// twoUps starts two `countmill up` on a PostgreSQL of their own.
func twoUps(t *testing.T) (server *emulator.PostgresServer, ups []*running) {
	t.Helper()
	server = emulator.NewPostgres(t)
	for range 2 {
		r := startWith(t, Config{Store: server.URL, Create: true})
		ups = append(ups, r)
	}
	ups[0].waitReady(t)
	return server, ups
}

// Other programs count inside their own transactions: from Go, by SQL as Rails and Django send it, and by a trigger. What is committed counts
// once, whichever of two `countmill up` takes it. What is rolled back, also to a savepoint, does not.
func TestCountingInTransactions(t *testing.T) {
	t.Parallel()
	server, ups := twoUps(t)
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	do := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	// A role that has nothing but its own tables, with a counter cache by trigger.
	do("create role blog", "grant usage on schema countmill to blog", "grant execute on all functions in schema countmill to blog", "create schema blog authorization blog", "set role blog",
		"create table blog.comments (id bigint generated always as identity primary key, post bigint not null)",
		`create function blog.counted() returns trigger language plpgsql as $$ begin
			perform countmill.add('comments:post-' || coalesce(new.post, old.post), case tg_op when 'DELETE' then -1 else 1 end);
			return null;
		end $$`,
		"create trigger counted after insert or delete on blog.comments for each row execute function blog.counted()")
	if _, err := conn.Exec(ctx, "insert into countmill.added (counter, delta) values ('forged', 1)"); err == nil {
		t.Error("the role of another program writes to the table itself")
	}

	// pgx, with a transaction that is rolled back and one that continues after a savepoint.
	failed := errors.New("the caller gives up")
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := addtx.Add(ctx, tx, "likes", 5); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := addtx.Add(ctx, tx, "likes", 2); err != nil {
			return err
		}
		if err := addtx.Add(ctx, tx, "", 1); !errors.Is(err, countmill.ErrInvalid) {
			return fmt.Errorf("a counter without a name: %w", err)
		}
		if err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error { return errors.Join(addtx.Add(ctx, savepoint, "likes", 100), failed) }); !errors.Is(err, failed) {
			return err
		}
		return addtx.Add(ctx, tx, "likes", 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	// database/sql.
	db, err := sql.Open("pgx", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		err = errors.Join(addtx.AddSQL(ctx, tx, "likes", 10), tx.Commit())
	}
	if err != nil {
		t.Fatal(err)
	}
	// ActiveRecord quotes values; Django sends parameters. Bulk paths pass no callback by: they are triggers, or a select.
	do("BEGIN", "SELECT countmill.add('likes', 20)", "SAVEPOINT active_record_1", "SELECT countmill.add('likes', 1000)", "ROLLBACK TO SAVEPOINT active_record_1", "RELEASE SAVEPOINT active_record_1", "COMMIT",
		"insert into blog.comments (post) select i % 3 from generate_series(1, 3000) i", "delete from blog.comments where post = 1",
		"select countmill.add('adopted', n) from (values (7), (8)) v(n)")
	if _, err := conn.Exec(ctx, "SELECT countmill.add(%s, %s)", "likes", 1); err == nil {
		t.Error("a statement of another driver's form works")
	}
	if _, err := conn.Exec(ctx, "select countmill.add($1)", "likes"); err != nil {
		t.Error(err)
	}
	const form = "counter: no control character, outer space, leading = or __x__"
	for wrong, want := range map[string]string{
		"''": "counter has 1 to 500 bytes", "repeat('a', 501)": "counter has 1 to 500 bytes", "' a'": form, "'a '": form, "'=g'": form, "'__a__'": form, "E'a\\x01'": form,
		"'a', 0": "delta is from -9007199254740991 to 9007199254740991 and not 0", "'a', 9007199254740992": "delta is from -9007199254740991 to 9007199254740991 and not 0",
		"null": "counter", "'a', 1, ''": "adoption has 1 to 500 bytes", "'a', 1, repeat('a', 501)": "adoption has 1 to 500 bytes",
	} {
		if _, err := conn.Exec(ctx, "select countmill.add("+wrong+")"); err == nil || !strings.Contains(err.Error(), `"`+want+`"`) {
			t.Errorf("countmill.add(%s): %v, want %q", wrong, err, want)
		}
	}

	// A transaction that stays open makes nobody wait, and locks no row that an aggregator needs.
	do("begin", "select countmill.add('parent:a', 1)")
	impatient, err := pgx.Connect(ctx, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer impatient.Close(context.Background())
	for _, sql := range []string{"set lock_timeout = 1", "select countmill.add('parent:a', -7)", "select countmill.add('parent:a', 5)"} {
		if _, err := impatient.Exec(ctx, sql); err != nil {
			t.Errorf("%s beside an open transaction: %v", sql, err)
		}
	}
	ups[0].poll(t, "a total below 0", func() bool {
		_, text := ups[0].call(t, "GET", "/v1/totals?counter=parent:a", "")
		return strings.Contains(text, `"total":-2,`)
	})
	do("commit")

	// Transactions that count the same parents in opposite orders wait for nobody.
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			c, err := pgx.Connect(ctx, server.URL)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close(context.Background())
			names := []string{"parent:a", "parent:b"}
			for range 50 {
				err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
					return errors.Join(addtx.Add(ctx, tx, names[worker%2], 1), addtx.Add(ctx, tx, names[1-worker%2], 1))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for counter, want := range map[string]int64{
		"likes": 34, "adopted": 15, "parent:a": 199, "parent:b": 200, "comments:post-0": 1000, "comments:post-1": 0, "comments:post-2": 1000,
	} {
		for _, r := range ups {
			r.poll(t, fmt.Sprintf("%s to be %d", counter, want), func() bool {
				_, text := r.call(t, "GET", "/v1/totals?counter="+counter, "")
				return strings.Contains(text, fmt.Sprintf(`"total":%d,`, want))
			})
		}
	}
	if used, most := ups[0].metric(t, "countmill_store_connections"), ups[0].metric(t, "countmill_store_connections_limit"); used < 1 || used > most {
		t.Errorf("%g connections of at most %g", used, most)
	}
	var left int
	do("reset role")
	if err := conn.QueryRow(ctx, "select count(*) from countmill.added").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d increments are left (%v)", left, err)
	}
}
