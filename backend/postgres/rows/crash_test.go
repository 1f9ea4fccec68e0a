package rows

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

// A soft commit is there after a crash of PostgreSQL: the process goes on, and its next commits may rely on it. Commits follow a default
// that changes while the process runs, but off.
func TestCrash(t *testing.T) {
	t.Parallel()
	e := open(t, emulator.NewPostgres(t, "synchronous_commit = local").URL+"&schema=countmill", enginetest.Kinds())
	for _, to := range []string{"remote_apply", "off"} {
		for _, sql := range []string{"alter system set synchronous_commit = " + to, "select pg_reload_conf()"} {
			if _, err := e.pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		want := strings.Replace(to, "off", "on", 1)
		for deadline := time.Now().Add(time.Minute); e.durable.Load() != want; {
			if _, err := e.Check(t.Context(), nil); err != nil || time.Now().After(deadline) {
				t.Fatalf("the default is %s: commits have %v (%v)", to, e.durable.Load(), err)
			}
		}
	}
	// The process that writes what no commit has written. PostgreSQL crashes, and starts again, when it is killed.
	writer := func() (pid int, err error) {
		return pid, e.pool.QueryRow(t.Context(), "select coalesce(max(pid), 0) from pg_stat_activity where backend_type = 'walwriter'").Scan(&pid)
	}
	first, err := writer()
	for deadline := time.Now().Add(time.Minute); err == nil && first == 0 && time.Now().Before(deadline); { // 0 would be every process of this group
		first, err = writer()
	}
	if err == nil && first > 0 {
		err = syscall.Kill(first, syscall.SIGSTOP)
	}
	if err != nil || first == 0 {
		t.Fatalf("process %d: %v", first, err)
	}
	c := add("a", one(count, 5)...)
	c.Soft = true
	_, err = e.Commit(t.Context(), c)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		if pid, err := writer(); err == nil && pid != 0 && pid != first {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("PostgreSQL has not started again")
		}
	}
	e.pool.Reset()
	if row := read(t, e, engine.Key{Kind: record, Name: "a"}); row.Int64(count) != 5 {
		t.Errorf("after the crash: %+v, want 5", row)
	}
}
