package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// addedTable has a row for each increment of another program's transaction. Rows are only appended, and a fold removes them, so
// no transaction waits for another one.
const addedTable = "added"

// adding makes the table, and the function that adds to it. The table refuses what countmill.CheckCounter and CheckDelta refuse: a fold could
// never take it. Nobody needs a right to the table but the role of countmill.
func adding(schema string) []string {
	table, function := pgx.Identifier{schema, addedTable}.Sanitize(), pgx.Identifier{schema, "add"}.Sanitize()
	return []string{
		fmt.Sprintf(`create table if not exists %s (
			id bigint generated always as identity primary key,
			counter text not null collate "C" check (octet_length(counter) between 1 and %d and counter !~ '[\x01-\x1f\x7f-\x9f]' and counter !~ '^[ =]| $|^__.*__$'),
			delta bigint not null check (delta <> 0 and delta between -%d and %[3]d),
			at timestamptz not null default now()
		) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)`, table, countmill.MaxCounterName, int64(countmill.MaxDelta)),
		fmt.Sprintf(`create or replace function %s(counter text, delta bigint default 1) returns void language sql security definer set search_path = '' as
			$sql$ insert into %s (counter, delta) values ($1, $2) $sql$`, function, table),
	}
}

// Added lists increments of other programs' transactions. Those of transactions that are open are not there yet.
func (s *Store) Added(ctx context.Context, limit int) (all []store.Added, err error) {
	rows, err := s.engine.Pool().Query(ctx, "select id, counter, delta, at from "+s.added+" order by id limit $1", limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[store.Added])
}
