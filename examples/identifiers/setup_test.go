package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(m)) }
