package e2e

import (
	"bytes"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/faultproxy"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// Three `countmill up` share a database, with no broker between them. They are killed, and PostgreSQL crashes, again and again under
// load. Each acknowledged increment is in the next total of every process and in all later ones, once. So is, soon, each of another program's
// transactions.
func TestKillsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "kills countmill for many seconds")
	server := emulator.NewPostgres(t, "wal_writer_delay = '10s'") // a crash takes what no commit has written
	k, ups, ready := threeUps(t, server.URL)
	began, crashes := time.Now(), 0
	const struck = 12
	for n := range struck {
		<-time.After(time.Duration(k.rand.IntN(400)) * time.Millisecond)
		sql(t, server.URL, "select countmill.add('sql') from generate_series(1, 1000)")
		before := now()
		if n%3 == 2 {
			server.Crash()
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			crashes++
		} else {
			ups[k.rand.IntN(len(ups))].kill()
		}
		k.counting(fmt.Sprintf("%d kills", n+1), before)
		until(t, time.Minute, "all countmill up to be ready again", ready)
		k.ledger.check(false)
	}
	for _, up := range ups {
		until(t, time.Minute, "the increments of transactions to be counted", func() bool {
			out, err := up.up().command(t, "get sql")
			<-time.After(time.Second)
			return err == nil && strings.TrimSpace(out) == strconv.Itoa(1000*struck)
		})
	}
	k.report(time.Since(began), [2]string{"kills", strconv.Itoa(struck - crashes)}, [2]string{"crashes of PostgreSQL", strconv.Itoa(crashes)})
}

// threeUps starts three `countmill up` on a database, and their callers.
func threeUps(t *testing.T, url string) (k *kills, ups []*member, ready func() bool) {
	t.Helper()
	for range 3 {
		ups = append(ups, keep(t, nil, "up", "--store", url, "--create"))
	}
	ready = func() bool { return !slices.ContainsFunc(ups, func(up *member) bool { return !up.ready() }) }
	until(t, time.Minute, "all countmill up to be ready", ready)
	seed := seed(t)
	k = &kills{
		t: t, rand: mathrand.New(mathrand.NewPCG(seed, 1<<34)), ledger: newLedger("kills", true), up: ups[0], parent: os.Getppid(),
	}
	k.callers = startCallers(t, k.ledger, seed, ups, ups, 20*time.Millisecond)
	return k, ups, ready
}

// The database of three `countmill up` fails over to a synchronous standby, under load. The standby lacks the last writes. It has each
// acknowledged increment, once.
func TestFailoverOnPostgreSQL(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "copies a database, and crashes it under load")
	primary := emulator.NewPostgres(t)
	standby := primary.Standby(t)
	hostOf := func(server *emulator.PostgresServer) string {
		return strings.TrimPrefix(strings.Split(server.URL, "/")[2], "postgres@")
	}
	way := faultproxy.Start(t, hostOf(primary))
	_, port, _ := strings.Cut(way.Host(), ":")
	sql(t, standby.URL, "alter system set primary_conninfo = 'host=127.0.0.1 user=postgres port="+port+"'", "select pg_reload_conf()")
	sql(t, primary.URL, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
	until(t, time.Minute, "the standby to be synchronous", func() bool {
		return way.Accepted() > 0 && sql(t, primary.URL, "select string_agg(sync_state, ' ') from pg_stat_replication") == "sync"
	})
	k, ups, ready := threeUps(t, strings.Replace(primary.URL, "/postgres?", ","+hostOf(standby)+"/postgres?target_session_attrs=read-write&", 1))
	began := time.Now()
	<-time.After(time.Duration(2000+k.rand.IntN(1000)) * time.Millisecond)
	way.Hang()
	<-time.After(time.Second)
	primary.Crash()
	way.Cut()
	sql(t, standby.URL, "select pg_promote()")
	k.counting("a failover", now())
	until(t, time.Minute, "all countmill up to be ready again", ready)
	k.ledger.check(false)
	if got := sql(t, standby.URL, "select restores from countmill.countmill_format"); got != "1" {
		t.Errorf("a failover counts as %s restores", got)
	}
	until(t, time.Minute, "status to say so", func() bool {
		out, err := ups[0].up().command(t, "status")
		<-time.After(time.Second)
		return err != nil && strings.Contains(out, "The database came to another server, or was restored, ")
	})
	k.report(time.Since(began), [2]string{"failovers", "1"})
}

// The disk of PostgreSQL's WAL becomes full under load, so PostgreSQL ends. Each countmill then says that it is not ready, and refuses
// increments with a time to try again. When there is room again and PostgreSQL is started, all continue by themselves. Each
// acknowledged increment is in the next total and in all later ones, once.
func TestFullWALOnPostgreSQL(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "mounts a small disk, as root")
	server := emulator.NewPostgres(t, "max_wal_size = '32MB'", "min_wal_size = '32MB'")
	disk := emulator.PostgresDisk(t, 128<<20)
	if err := server.MoveWAL(disk); err != nil {
		t.Fatal(err)
	}
	k, ups, ready := threeUps(t, server.URL)
	began := time.Now()
	const times = 2
	for range times {
		f, err := os.Create(filepath.Join(disk, "filler"))
		if err != nil {
			t.Fatal(err)
		}
		end := k.flood()
		k.occupy(f, busy, server.Ended)
		end()
		if !server.Ended() {
			t.Fatalf("PostgreSQL continues without room, for %s", busy)
		}
		for _, up := range ups {
			until(t, time.Minute, "countmill up to say that it is not ready", func() bool { return up.up().status() == http.StatusServiceUnavailable })
			until(t, time.Minute, "countmill up to refuse an increment with a time to try again", func() bool {
				resp, err := client.Post(up.up().url+"/v1/increments", "application/json", strings.NewReader(`{"counter":"a"}`))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close() // 504 if it shared a commit that may have happened
				return resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != ""
			})
		}
		before := now()
		if err := errors.Join(f.Close(), os.Remove(f.Name()), server.Start()); err != nil {
			t.Fatal(err)
		}
		k.counting("a full disk", before)
		until(t, time.Minute, "all countmill up to be ready again", ready)
		k.ledger.check(false)
	}
	k.report(time.Since(began), [2]string{"times full", strconv.Itoa(times)})
}

// command runs countmill as a client of the process.
func (p *process) command(t *testing.T, line string) (string, error) {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, strings.Fields(line)...)
	cmd.Env = append(os.Environ(), "COUNTMILL_SERVER="+p.url)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sql runs statements, and returns the first value of the last statement as text.
func sql(t *testing.T, url string, statements ...string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, s := range statements {
		results, err := conn.PgConn().Exec(t.Context(), s).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if last := results[len(results)-1]; len(last.Rows) > 0 {
			value = string(last.Rows[0][0])
		}
	}
	return value
}

// Two `countmill up` on PostgreSQL have every feature: commands of both walk them. A sum that is damaged is found and corrected, and a dump
// that is restored has all of it, but gives no value of a sequence again.
func TestFeaturesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "waits for minutes until groups of a new index are readable")
	server := emulator.NewPostgres(t)
	a := start(t, nil, "up", "--store", server.URL, "--create").ready(t)
	b := start(t, nil, "up", "--store", server.URL).ready(t)
	want := func(p *process, line, piece string) {
		t.Helper()
		until(t, 15*time.Minute, line+" to print "+piece, func() bool {
			out, err := p.command(t, line)
			if err == nil && strings.Contains(out, piece) {
				return true
			}
			t.Logf("%s: %q (%v)", line, out, err)
			<-time.After(2 * time.Second)
			return false
		})
	}
	want(a, "rule add journal page:*=30d", "page:*")
	want(b, "rule add series page:*=1m:6h,15m:400d", "page:*")
	want(a, "index create sites --match page:{site}:* --group site:{site}", "sites")
	want(a, "incr page:one:a 3", "+3")
	want(b, "incr page:one:b 4", "+4")
	sql(t, server.URL, "select countmill.add('page:two:a', 10)")
	want(a, "next orders", "1")
	want(b, "next orders", "2")
	want(b, "get --group site:one", "7")
	want(a, "get --group site:two", "10")
	want(a, "top sites", "page:two:a")
	want(b, "journal page:one:a", "3")
	want(a, "series page:one:a --last 24h", "3")
	want(b, "recount page: --opening", "")
	want(b, "recount page:", "3 counters")

	totals := filepath.Join(t.TempDir(), "totals.csv")
	want(a, "export page: --output "+totals, "")
	want(b, "import "+totals+" --prefix copy:", "3 rows are counted")
	want(a, "get copy:page:one:b", "4")

	sql(t, server.URL, "update countmill.shard set f_count = f_count + 5 where name = 'page:one:a'")
	if out, err := a.command(t, "recount page:"); err == nil || !strings.Contains(out, "page:one:a") {
		t.Errorf("a recount after damage: %v\n%s", err, out)
	}
	want(a, "recount page: --repair", "page:one:a")
	want(b, "get page:one:a", "3")
	want(b, "verify", "")

	dump, err := exec.Command("pg_dump", "--schema=countmill", server.URL).Output()
	if err != nil {
		t.Fatal(err)
	}
	sql(t, server.URL, "create database copy")
	copied := strings.Replace(server.URL, "/postgres?", "/copy?", 1)
	psql := exec.Command("psql", "-q", "-v", "ON_ERROR_STOP=1", copied)
	psql.Stdin = bytes.NewReader(dump)
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := start(t, nil, "up", "--store", copied).ready(t)
	want(c, "get page:one:a", "3")
	want(c, "get --group site:two", "10")
	want(c, "next orders", strconv.Itoa(2+1<<20+1))
	want(a, "next orders", "3")
}
