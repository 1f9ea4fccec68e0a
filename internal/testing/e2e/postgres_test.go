package e2e

import (
	"bytes"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// Three `countmill up` share a database, with no broker between them. They are killed, and PostgreSQL crashes, again and again under
// load. Each acknowledged increment is in the next total of every process and in all later ones, once.
func TestKillsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "kills countmill for many seconds")
	server := emulator.NewPostgres(t, "wal_writer_delay = '10s'") // a crash takes what no commit has written
	ups := make([]*member, 3)
	for i := range ups {
		ups[i] = keep(t, nil, "up", "--store", server.URL, "--create")
	}
	ready := func() bool {
		for _, up := range ups {
			if !up.ready() {
				return false
			}
		}
		return true
	}
	until(t, time.Minute, "all countmill up to be ready", ready)
	seed := seed(t)
	k := &kills{
		t: t, rand: mathrand.New(mathrand.NewPCG(seed, 1<<34)), ledger: newLedger("kills", true), up: ups[0], parent: os.Getppid(),
	}
	k.callers = startCallers(t, k.ledger, seed, ups, ups, 20*time.Millisecond)
	began, crashes := time.Now(), 0
	const struck = 12
	for n := range struck {
		<-time.After(time.Duration(k.rand.IntN(400)) * time.Millisecond)
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
	k.report(time.Since(began), [2]string{"kills", strconv.Itoa(struck - crashes)}, [2]string{"crashes of PostgreSQL", strconv.Itoa(crashes)})
	for _, up := range ups[1:] {
		up.mu.Lock()
		if len(up.ends)+len(up.early) > 0 {
			t.Errorf("ended by itself: %q, and before it listened %q", up.ends, up.early)
		}
		up.mu.Unlock()
	}
}

// Two `countmill up` on PostgreSQL have every feature: commands of both walk them. A sum that is damaged is found and corrected, and a dump
// that is restored has all of it, but gives no value of a sequence again.
func TestFeaturesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "waits for minutes until groups of a new index are readable")
	server := emulator.NewPostgres(t)
	a := start(t, nil, "up", "--store", server.URL, "--create").ready(t)
	b := start(t, nil, "up", "--store", server.URL).ready(t)
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	run := func(p *process, line string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, strings.Fields(line)...)
		cmd.Env = append(os.Environ(), "COUNTMILL_SERVER="+p.url)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	want := func(p *process, line, piece string) {
		t.Helper()
		until(t, 15*time.Minute, line+" to print "+piece, func() bool {
			out, err := run(p, line)
			if err == nil && strings.Contains(out, piece) {
				return true
			}
			t.Logf("%s: %q (%v)", line, out, err)
			<-time.After(2 * time.Second)
			return false
		})
	}
	sql := func(statement string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), server.URL)
		if err == nil {
			defer conn.Close(t.Context())
			_, err = conn.Exec(t.Context(), statement)
		}
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}

	want(a, "rule add journal page:*=30d", "page:*")
	want(b, "rule add series page:*=1m:6h,15m:400d", "page:*")
	want(a, "index create sites --match page:{site}:* --group site:{site}", "sites")
	want(a, "incr page:one:a 3", "+3")
	want(b, "incr page:one:b 4", "+4")
	sql("select countmill.add('page:two:a', 10)")
	want(a, "next orders", "1")
	want(b, "next orders", "2")
	want(b, "get --group site:one", "7")
	want(a, "get --group site:two", "10")
	want(a, "top sites", "page:two:a")
	want(b, "journal page:one:a", "3")
	want(a, "series page:one:a --last 24h", "3")
	want(b, "recount page:", "nothing")

	totals := filepath.Join(t.TempDir(), "totals.csv")
	want(a, "export page: --output "+totals, "")
	want(b, "import "+totals+" --prefix copy:", "3 rows are counted")
	want(a, "get copy:page:one:b", "4")

	sql("update countmill.shard set f_count = f_count + 5 where name = 'page:one:a'")
	if out, err := run(a, "recount page:"); err == nil || !strings.Contains(out, "page:one:a") {
		t.Errorf("a recount after damage: %v\n%s", err, out)
	}
	want(a, "recount page: --repair", "page:one:a")
	want(b, "get page:one:a", "3")
	want(b, "verify", "")

	dump, err := exec.Command("pg_dump", "--schema=countmill", server.URL).Output()
	if err != nil {
		t.Fatal(err)
	}
	sql("create database copy")
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
