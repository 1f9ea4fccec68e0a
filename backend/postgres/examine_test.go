package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/internal/testing/emulator"
)

// schemaOf returns the name of the schema of a URL.
func schemaOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return pgx.Identifier{u.Query().Get("schema")}.Sanitize()
}

// exec runs statements as the owner of the server.
func exec(t *testing.T, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), emulator.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// role makes a role, and returns the URL with it. It is dropped after the test.
func role(t *testing.T, address, name string) string {
	t.Helper()
	exec(t, "create role "+name+" login")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), emulator.Postgres(t))
		if err == nil {
			_, err = conn.Exec(context.Background(), "drop owned by "+name+" cascade; drop role "+name)
			_ = conn.Close(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
	})
	return strings.Replace(address, "postgres@", name+"@", 1)
}

func TestExamine(t *testing.T) {
	t.Parallel()
	made := emulator.PostgresSchema(t)
	open(t, postgres.Config{URL: made})
	name := schemaOf(t, made)
	stranger := role(t, made, "stranger_"+strings.Trim(name, `"`))
	reader := role(t, made, "reader_"+strings.Trim(name, `"`))
	exec(t, fmt.Sprintf("grant usage on schema %s to %s", name, `"reader_`+strings.Trim(name, `"`)+`"`),
		fmt.Sprintf("grant select on all tables in schema %s to %s", name, `"reader_`+strings.Trim(name, `"`)+`"`))
	for what, test := range map[string]struct {
		exam postgres.Exam
		want []string // a piece of each finding
	}{
		"all is well":                  {postgres.Exam{Config: postgres.Config{URL: made}}, nil},
		"nobody answers":               {postgres.Exam{Config: postgres.Config{URL: "postgres://x@127.0.0.1:1/x?connect_timeout=5"}}, []string{"reachability of the database: failed to connect to `user=x database=x`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused."}},
		"an empty database":            {postgres.Exam{Config: postgres.Config{URL: emulator.PostgresSchema(t)}}, []string{"meta record: no tables"}},
		"a stranger":                   {postgres.Exam{Config: postgres.Config{URL: stranger}}, []string{"permissions of the database: lacks: usage on schema"}},
		"a reader":                     {postgres.Exam{Config: postgres.Config{URL: reader, ReadOnly: true}}, nil},
		"a reader for an aggregator":   {postgres.Exam{Config: postgres.Config{URL: reader}}, []string{"permissions of the database: delete on chunk"}},
		"the clock is behind":          {postgres.Exam{Config: postgres.Config{URL: made}, NowFunc: func() time.Time { return time.Now().Add(-time.Hour) }}, []string{"clock: 1h0m0s behind"}},
		"a database that is read only": {postgres.Exam{Config: postgres.Config{URL: made + "&default_transaction_read_only=on"}}, []string{"writes: a standby"}},
		"asynchronous commits":         {postgres.Exam{Config: postgres.Config{URL: made + "&synchronous_commit=off"}}, nil},
	} {
		t.Run(what, func(t *testing.T) { wantFindings(t, test.exam, test.want...) })
	}

	exec(t, "drop index "+name+".shard_name", "alter table "+name+".shard set (autovacuum_enabled = false)",
		"insert into "+name+".shard (place, name, part) select i, 'dead', 0 from generate_series(1, 110000) i", "delete from "+name+".shard", "select pg_stat_force_next_flush()")
	damaged := postgres.Exam{Config: postgres.Config{URL: made}}
	wantFindings(t, damaged, "autovacuum: is off for: shard", "dead rows: shard: 110000 dead, 0 live", "indexes: missing, or not valid: shard_name")
	open(t, postgres.Config{URL: made}) // which makes the index again
	wantFindings(t, damaged, "autovacuum: is off for: shard", "dead rows: shard: 110000 dead, 0 live")
}

func wantFindings(t *testing.T, e postgres.Exam, want ...string) {
	t.Helper()
	var r backend.Report
	postgres.Examine(t.Context(), e, &r)
	if len(r.Findings) != len(want) {
		t.Errorf("got %d findings, want %d: %+v", len(r.Findings), len(want), r.Findings)
		return
	}
	for i, f := range r.Findings {
		check, piece, _ := strings.Cut(want[i], ": ")
		if f.Check != check || !strings.Contains(strings.ToLower(f.What), piece) {
			t.Errorf("got %+v, want %q", f, want[i])
		}
	}
	if len(want) == 0 {
		var checks []string
		for _, c := range r.Checked {
			if c.Check == "permissions of the database" && strings.Contains(c.Note, "For up give --bus inproc: too") != e.ReadOnly {
				t.Errorf("the check of rights says %q", c.Note)
			}
			checks = append(checks, c.Check)
		}
		if all := []string{"reachability of the database", "clock", "writes", "durability of commits", "autovacuum", "meta record", "permissions of the database", "dead rows", "indexes", "adoptions"}; !slices.Equal(checks, all) {
			t.Errorf("checked %q, want %q", checks, all)
		}
	}
}
