package aggregator

import (
	"slices"
	"sync"

	"github.com/countmill/countmill/internal/env"
	"github.com/countmill/countmill/wire"
)

// lanes picks shards and sees to it that this process never has one shard in two
// commits under way: they would only contend with each other.
type lanes struct {
	env   *env.Env
	alone bool // one commit at a time: nothing can collide

	mu   sync.Mutex
	busy map[lane]struct{}
}

type lane struct {
	counter string
	shard   int
}

// acquire gives each add a random free shard below its counter's shards and puts the
// adds in key order. It takes all or nothing: false means that some counter has no
// free shard.
func (l *lanes) acquire(adds []Add, shards []int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	moved := false
	for i := range adds {
		shard, ok := l.freeLocked(adds[i].Counter, shards[i])
		if !ok {
			l.releaseLocked(adds[:i])
			return false
		}
		adds[i].Shard = shard
		if !l.alone {
			l.busy[lane{adds[i].Counter, shard}] = struct{}{}
		}
		if shard > 0 {
			adds[i].Hash, moved = wire.SpreadHash(adds[i].Hash, shard), true
		}
	}
	if moved {
		slices.SortFunc(adds, compareAdds)
	}
	return true
}

func (l *lanes) freeLocked(counter string, shards int) (int, bool) {
	first := 0
	if shards > 1 {
		first = l.env.IntN(shards)
	}
	if l.alone {
		return first, true
	}
	for i := range shards {
		shard := (first + i) % shards
		if _, ok := l.busy[lane{counter, shard}]; !ok {
			return shard, true
		}
	}
	return 0, false
}

func (l *lanes) release(adds []Add) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(adds)
}

func (l *lanes) releaseLocked(adds []Add) {
	if l.alone {
		return
	}
	for i := range adds {
		delete(l.busy, lane{adds[i].Counter, adds[i].Shard})
	}
}
