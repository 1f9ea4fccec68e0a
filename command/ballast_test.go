package command

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestBallastPutsCollectionsOff(t *testing.T) {
	goal := func() uint64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	held := ballast((&host{}).lookup)
	if with := goal(); with < 2*ballastBytes {
		t.Errorf("garbage is collected at a heap of %d bytes, want twice %d at least", with, ballastBytes)
	}
	runtime.KeepAlive(held)
	for _, setting := range []string{"GOGC=50", "GOMEMLIMIT=100MiB"} {
		if held := ballast((&host{environ: []string{setting}}).lookup); held != nil {
			t.Errorf("with %s the ballast has %d bytes, want none", setting, len(held))
		}
	}
}
