package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
)

// Package app opens Google's libraries too, and the census library starts a goroutine that it never ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(emulator.Around(m), goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
