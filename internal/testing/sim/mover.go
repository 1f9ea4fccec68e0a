package sim

import (
	"math/rand/v2"

	"github.com/countmill/countmill/internal/testing/sim/fakestore"
)

// A mover is the processes that move series to the archive. Any of them may die between any two steps.
type mover struct {
	rng   *rand.Rand        // of its own, so that older seeds keep their schedules
	moves []*fakestore.Move // that have read, and did not commit yet
}

func newMover(k *kernel) *mover {
	return &mover{rng: rand.New(rand.NewPCG(k.seed, 0x6d6f766572))}
}

// moveSeries lets moves that have read commit, die or wait, and others read. The answer to a commit may
// be lost: the same transaction then commits again, beside others.
func (db *database) moveSeries() {
	m := db.mover
	var waiting []*fakestore.Move
	for _, move := range m.moves {
		switch m.rng.IntN(4) {
		case 0: // it dies
			continue
		case 1:
			err := db.fake.CommitMove(move)
			db.say(nil, "a move of %s commits: %v", move, err)
			if err == nil {
				db.Moved++
			}
			if m.rng.IntN(2) == 0 {
				continue
			}
		}
		waiting = append(waiting, move)
	}
	if m.moves = waiting; m.rng.IntN(2) == 0 && len(waiting) < 10 {
		m.moves = append(m.moves, db.fake.ReadMoves()...)
	}
}
