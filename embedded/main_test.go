package embedded_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/embedded"
)

// patience is how long something may take that must happen: longer than any machine needs.
const patience = time.Minute

// The test of kills runs this program again, as the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(count(dir))
	}
	// Pebble leaves a goroutine behind when a directory cannot be opened, as its lock is held.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"), // begun by Google's libraries as they load
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/vfs.(*diskHealthCheckingFS).startTickerLocked.func1"),
	)
}

// open opens a directory until the end of the test.
func open(t testing.TB, dir string, options ...embedded.Option) *embedded.DB {
	t.Helper()
	db, err := embedded.Open(dir, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantTotal(t testing.TB, db *embedded.DB, counter string, want int64) {
	t.Helper()
	got, err := db.Total(t.Context(), counter)
	if err != nil || got.Total != want || got.Exists != (want != 0) {
		t.Errorf("total of %q: got %+v and %v, want %d", counter, got, err, want)
	}
}
