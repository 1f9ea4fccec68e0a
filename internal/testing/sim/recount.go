package sim

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/recount"
)

// recounter recounts the database by its clock. The same schedule writes the same records.
func (db *database) recounter() *recount.Recounter {
	return recount.New(db.own, clock.With(recount.Config{}, &clock.Env{
		Wall: func() time.Time { return db.storeNow() }, Random: rand.NewPCG(db.plan.seed, 0x7265636f756e74), Entropy: rand.NewChaCha8([32]byte{7}),
	}))
}

// openJournal writes opening balances before anything is counted. Where commits by older rules could still come it
// writes none, and nothing is recounted.
func (db *database) openJournal() {
	if db.plan.journal != nil {
		if _, err := db.recounter().Tend(background, slog.New(slog.DiscardHandler)); err != nil {
			panic(err)
		}
	}
}

// recount: whatever happened, no sum of a counter with a journal differs from it.
func (jo *journalOracle) recount() {
	got := must(jo.db.recounter().Recount(background, recount.Query{}))
	for i := range got.Findings {
		f := &got.Findings[i]
		jo.violate("a recount finds a wrong %s of %s: %d stored, %d in the journal", f.Kind, f.Name, f.Stored, f.Counted)
	}
}
