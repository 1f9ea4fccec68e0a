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

// adding makes the table, and the functions that add to it. The table refuses what countmill.CheckCounter and CheckDelta refuse: a fold could
// never take it; its constraints say why. Nobody needs a right to a table but the role of countmill, and nobody has the right to call a function before
// it is granted: a role that reads has the schema too.
//
// An adoption counts the rows of a table that exist, while writers go on. Their increments name the adoption, and are held until it has committed.
// It is one repeatable-read transaction: in its snapshot, it removes the increments that are held, and counts the rows. Both show it the same
// transactions. Increments of later ones stay, and count from then on. An adoption that fails leaves no trace.
func adding(schema string) []string {
	table := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	added, held, adopted := table(addedTable), table("held"), table("adopted")
	function := func(name, language, body string) string {
		return fmt.Sprintf("create or replace function %s returns void language %s security definer set search_path = '' as $sql$ %s $sql$", name, language, body)
	}
	return []string{
		fmt.Sprintf(`create table if not exists %s (
			id bigint generated always as identity primary key,
			counter text not null collate "C" constraint "counter has 1 to %[2]d bytes" check (octet_length(counter) between 1 and %[2]d)
				constraint "counter: no control character, outer space, leading = or __x__" check (counter !~ '[\x01-\x1f\x7f-\x9f]' and counter !~ '^[ =]| $|^__.*__$'),
			delta bigint not null constraint "delta is from -%[3]d to %[3]d and not 0" check (delta <> 0 and delta between -%[3]d and %[3]d),
			at timestamptz not null default now()
		) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)`, added, countmill.MaxCounterName, int64(countmill.MaxDelta)),
		fmt.Sprintf("create table if not exists %s (like %s including all, adoption text not null constraint \"adoption has 1 to %d bytes\" check (octet_length(adoption) between 1 and %[3]d))", held, added, countmill.MaxCounterName),
		fmt.Sprintf("create index if not exists held_adoption on %s (adoption)", held),
		fmt.Sprintf("create table if not exists %s (adoption text primary key, at timestamptz not null default now())", adopted),
		function(table("add")+"(counter text, delta bigint default 1)", "sql", fmt.Sprintf("insert into %s (counter, delta) values ($1, $2)", added)),
		function(table("add")+"(counter text, delta bigint, adoption text)", "plpgsql", fmt.Sprintf(`begin
			if exists (select from %s a where a.adoption = $3) then
				insert into %s (counter, delta) values ($1, $2);
			else
				insert into %s (counter, delta, adoption) values ($1, $2, $3);
			end if;
		end`, adopted, added, held)),
		function(table("adopt")+"(adoption text)", "plpgsql", fmt.Sprintf(`begin
			if current_setting('transaction_isolation') not in ('repeatable read', 'serializable') then
				raise 'an adoption is one transaction: begin isolation level repeatable read';
			end if;
			insert into %s values ($1);
			delete from %s h where h.adoption = $1;
		end`, adopted, held)),
		fmt.Sprintf("revoke execute on function %s(text, bigint), %[1]s(text, bigint, text), %s(text) from public", table("add"), table("adopt")),
	}
}

// Added lists increments of other programs' transactions. Those of transactions that are open are not there yet. First it releases some increments that
// an adoption has held.
func (s *Store) Added(ctx context.Context, limit int) (all []store.Added, err error) {
	b := new(pgx.Batch)
	b.Queue(s.release, limit)
	b.Queue("select id, counter, delta, at from "+s.added+" order by id limit $1", limit).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[store.Added])
		return err
	})
	return all, s.engine.Pool().SendBatch(ctx, b).Close()
}

// releasing moves increments of adoptions that have committed. The index is used for each adoption, however many others hold.
func releasing(schema string) string {
	table := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	return fmt.Sprintf(`with free as (delete from %s where id = any (array(
		select l.id from %s a, lateral (select h.id from %[1]s h where h.adoption = a.adoption limit $1 for update skip locked) l limit $1)) returning counter, delta, at)
		insert into %[3]s (counter, delta, at) select counter, delta, at from free`, table("held"), table("adopted"), table(addedTable))
}
