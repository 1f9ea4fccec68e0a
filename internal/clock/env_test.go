package clock

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Nil, and a field that is nil, is the machine.
func TestNilIsTheMachine(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]*Env{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if got, want := e.Now(), time.Now(); !got.Equal(want) {
					t.Errorf("Now is %s, the machine's clock says %s", got, want)
				}
				ran := false
				e.Go(func() { ran = true })
				synctest.Wait()
				if !ran {
					t.Error("Go started nothing")
				}
			})
			if a, b := e.Uint64(), e.Uint64(); a == b {
				t.Error("Uint64 twice gave the same")
			}
			// With a monotonic reading an hour of suspension would be no time between two of them.
			at, now := time.Now(), e.Now()
			if now != now.Round(0) || e.At(at) != at.Round(0) {
				t.Errorf("Now is %s and At %s, want %s without a monotonic reading", now, e.At(at), at)
			}
			ids := [2][16]byte{}
			for i := range ids {
				if n, err := e.Read(ids[i][:]); n != 16 || err != nil {
					t.Errorf("Read gave %d bytes and %v, want 16", n, err)
				}
			}
			if ids[0] == ids[1] {
				t.Error("Read gave the same bytes twice")
			}
			for range 100 {
				if n := e.IntN(3); n < 0 || n > 2 {
					t.Fatalf("IntN(3) is %d", n)
				}
				if d := e.Jitter(time.Second); d < 0 || d >= time.Second {
					t.Fatalf("Jitter of a second is %s", d)
				}
			}
		})
	}
}

// The functions of a simulation are used, and the machine's are not.
func TestAllOfItIsSimulated(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	spawned := 0
	e := func() *Env {
		return &Env{
			Wall:    func() time.Time { return at },
			Random:  rand.NewPCG(1, 2),
			Entropy: bytes.NewReader([]byte("sixteen bytes ok")),
			Spawn:   func(f func()) { spawned++; f() },
		}
	}
	draw := func(e *Env) (all [4]uint64) {
		all[0], all[1], all[2] = e.Uint64(), uint64(e.IntN(1000)), uint64(e.Jitter(time.Hour))
		all[3] = e.Uint64()
		return all
	}
	if a, b := draw(e()), draw(e()); a != b {
		t.Errorf("two runs drew %v and %v", a, b)
	}
	if now, then := e().Now(), e().At(time.Now()); now != at || then != at {
		t.Errorf("Now is %s and At %s, want %s", now, then, at)
	}
	id := make([]byte, 16)
	if _, err := e().Read(id); err != nil || string(id) != "sixteen bytes ok" {
		t.Errorf("Read gave %q and %v", id, err)
	}
	ran := false
	if e().Go(func() { ran = true }); !ran || spawned != 1 {
		t.Errorf("Go ran %t, through Spawn %d times", ran, spawned)
	}
}
