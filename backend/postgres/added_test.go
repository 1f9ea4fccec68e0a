package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
)

// A session has a connection of its own.
type session struct {
	t *testing.T
	*pgx.Conn
}

func newSession(t *testing.T, address string) session {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return session{t, conn}
}

func (s session) do(statements ...string) {
	s.t.Helper()
	for _, sql := range statements {
		if _, err := s.Exec(s.t.Context(), sql); err != nil {
			s.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// sum adds up what an aggregator would count.
func sum(t *testing.T, s opened) (n int64) {
	t.Helper()
	all, err := s.Added(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		n += a.Delta
	}
	return n
}

// An adoption counts each row once, whether its transaction ended before the adoption's snapshot, began before it, or after it.
func TestAdoption(t *testing.T) {
	t.Parallel()
	made := emulator.PostgresSchema(t)
	s := open(t, postgres.Config{URL: made})
	name := schemaOf(t, made)
	insert, adopt, count := "insert into "+name+".notes values (1)", "select "+name+".adopt('notes')", "select "+name+".add('notes', count(*)) from "+name+".notes"
	before, old, after, adoption := newSession(t, emulator.Postgres(t)), newSession(t, emulator.Postgres(t)), newSession(t, emulator.Postgres(t)), newSession(t, emulator.Postgres(t))

	adoption.do("create table "+name+".notes (post bigint)", insert, insert,
		fmt.Sprintf("create function %s.counted() returns trigger language plpgsql as $$ begin perform %[1]s.add('notes', 1, 'notes'); return null; end $$", name),
		fmt.Sprintf("create trigger counted after insert on %s.notes for each row execute function %[1]s.counted()", name),
		insert)
	before.do("begin", insert)
	old.do("begin isolation level repeatable read", "select 1")
	if got := sum(t, s); got != 0 {
		t.Errorf("%d are counted before the adoption, want 0", got)
	}

	// One in the wrong isolation, and one that fails, change nothing.
	if _, err := adoption.Exec(t.Context(), adopt); err == nil {
		t.Error("an adoption in read committed works")
	}
	adoption.do("begin isolation level repeatable read", adopt, count, "rollback")

	adoption.do("begin isolation level repeatable read", adopt)
	after.do(insert)
	adoption.do(count, "commit")
	before.do(insert, "commit")
	old.do(insert, "commit")
	after.do(insert)
	if got := sum(t, s); got != 8 {
		t.Errorf("%d are counted, want 8 rows", got)
	}
	if got := sum(t, s); got != 8 {
		t.Errorf("%d are counted by a second look, want 8 rows", got)
	}
	adoption.do("begin isolation level repeatable read")
	if _, err := adoption.Exec(t.Context(), adopt); err == nil {
		t.Error("an adoption works twice")
	}
	adoption.do("rollback")

	// What waits for an adoption that nobody runs is told.
	after.do("select " + name + ".add('a', 1, 'typo')")
	wantFindings(t, postgres.Exam{Config: postgres.Config{URL: made}})
	after.do("update " + name + ".held set at = now() - interval '2 hours'")
	wantFindings(t, postgres.Exam{Config: postgres.Config{URL: made}}, "adoptions: wait for adoptions: 1 of typo since")
}

// Releases in lots lose none, also those of many adoptions.
func TestReleasesInLots(t *testing.T) {
	t.Parallel()
	made := emulator.PostgresSchema(t)
	s := open(t, postgres.Config{URL: made})
	name := schemaOf(t, made)
	a := newSession(t, emulator.Postgres(t))
	a.do("select "+name+".add('a', 1, 'id' || i % 5) from generate_series(1, 500) i", "insert into "+name+".adopted select 'id' || i from generate_series(0, 3) i")
	deadline := time.Now().Add(time.Minute)
	for want := int64(400); sum(t, s) != want; {
		if all, err := s.Added(t.Context(), 10); err != nil || len(all) != 10 {
			t.Fatalf("%d, %v", len(all), err)
		}
		if time.Now().After(deadline) {
			t.Fatal("increments stay held")
		}
	}
}
