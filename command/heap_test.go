package command

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestSpareHeapPutsCollectionsOff(t *testing.T) {
	goal := func() uint64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	spare := spareHeap(call{}.lookup)
	if with := goal(); with < 2*spareBytes {
		t.Errorf("garbage is collected at a heap of %d bytes, want twice %d at least", with, spareBytes)
	}
	runtime.KeepAlive(spare)
	for _, setting := range []string{"GOGC=50", "GOMEMLIMIT=100MiB"} {
		if spare := spareHeap(call{environ: []string{setting}}.lookup); spare != nil {
			t.Errorf("with %s there are %d spare bytes, want none", setting, len(spare))
		}
	}
}
