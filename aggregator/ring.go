package aggregator

import (
	"math"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A lateness counts the entities that the series of a job add to its commit, where the store bounds them: one of the archive for each
// day of a counter that is too old for the ring (store.Limits.Ring). Without a ring all days are in the archive. A nil lateness
// counts nothing.
type lateness struct {
	rules  *store.Rules
	groups *grouper
	before wire.Minute // older minutes are in the archive
	most   int         // different minutes of a commit; 0 for no limit

	days    map[lateDay]struct{} // of the open job
	minutes map[wire.Minute]struct{}
}

type lateDay struct {
	counter string
	day     wire.Minute
}

// lateness returns a counter for the jobs of a window; nil if no series can add to them.
func (a *Aggregator) lateness() *lateness {
	rules, ring := a.settings.Load().Rules, a.limits.Ring
	if rules == nil || ring.Buckets == 0 && a.limits.Entities == 0 {
		return nil
	}
	l := &lateness{
		rules: rules, groups: newGrouper(rules), before: ring.Archive(a.clock.Now()), most: ring.Minutes,
		days: make(map[lateDay]struct{}), minutes: make(map[wire.Minute]struct{}),
	}
	if ring.Buckets == 0 {
		l.before = math.MaxInt32
	}
	return l
}

func (l *lateness) archive() wire.Minute {
	if l == nil {
		return 0
	}
	return l.before
}

// eachDay visits the days that a part adds to the archive. It may visit one twice.
func (l *lateness) eachDay(p *part, visit func(lateDay)) {
	if l == nil {
		return
	}
	if p.minute >= l.before {
		return
	}
	for i := range p.Entries {
		counter, day := p.Entries[i].Counter, p.minute/store.DayMinutes
		if l.rules.SeriesOf(counter) != nil {
			visit(lateDay{counter, day})
		}
		l.groups.each(counter, func(_ int, group []byte) {
			if name := string(group); l.rules.SeriesOf(name) != nil {
				visit(lateDay{name, day})
			}
		})
	}
}

// countNew is at least the number of entities of the archive that a part adds to the open job.
func (l *lateness) countNew(p *part) (n int) {
	l.eachDay(p, func(d lateDay) {
		if _, ok := l.days[d]; !ok {
			n++
		}
	})
	return n
}

// full reports whether the open job has no room for the minute of another part. All parts of a whole
// request have one minute.
func (l *lateness) full(p *part) bool {
	if l == nil || l.most == 0 || len(l.minutes) < l.most {
		return false
	}
	_, ok := l.minutes[p.minute]
	return !ok
}

// take adds a part to the open job.
func (l *lateness) take(p *part) {
	if l == nil {
		return
	}
	l.minutes[p.minute] = struct{}{}
	l.eachDay(p, func(d lateDay) { l.days[d] = struct{}{} })
}

// clear begins another job.
func (l *lateness) clear() {
	if l != nil {
		clear(l.days)
		clear(l.minutes)
	}
}
