package pebble

import (
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/recounttest"
)

func BenchmarkRecount(b *testing.B) {
	recounttest.Bench(b, open(b, Config{Dir: b.TempDir()}), 100_000, func(time.Duration) {}, time.Now)
}
