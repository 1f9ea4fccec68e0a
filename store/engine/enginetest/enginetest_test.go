package enginetest_test

import (
	"testing"
	"time"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
	"github.com/countmill/countmill/store/engine/memory"
)

// databases are limits like those of databases that exist.
var databases = map[string]engine.Limits{
	"plain":     {},
	"directory": {Exclusive: true, Conditions: true, CertainOutcome: true, FreeUpserts: true, MaxThenAdd: true},
	"service": {
		Rows: 400, Fields: 500, RowBytes: 900 << 10, RowRate: 1, RowsCost: true, ReadsCost: true, Spread: true, ByName: true, Returns: true,
		MaxThenAdd: true, Expires: true, Clock: true, Past: time.Hour,
	},
	"server": {Conditions: true, Returns: true, ByName: true, Clock: true, RowRate: 300},
}

func under(t *testing.T, d *memory.Database) *enginetest.Under {
	u := &enginetest.Under{Engine: d.Open()}
	t.Cleanup(func() { _ = u.Engine.Close() })
	u.Reopen = func(t *testing.T) engine.Engine {
		if err := u.Engine.Close(); err != nil {
			t.Error(err)
		}
		return d.Open()
	}
	u.HoldSyncs = func(*testing.T) func() { return d.HoldSyncs() }
	u.CutPower = func(*testing.T) engine.Engine { d.CutPower(); return d.Open() }
	if !u.Engine.Limits().Exclusive {
		u.Another = func(*testing.T) engine.Engine { return d.Open() }
	}
	return u
}

func TestMemory(t *testing.T) {
	t.Parallel()
	for name, limits := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enginetest.Run(t, func(t *testing.T, kinds engine.Kinds) *enginetest.Under {
				return under(t, memory.New(kinds, memory.Options{Limits: limits}))
			})
		})
	}
}
