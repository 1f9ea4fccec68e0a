package e2e

import (
	"slices"
	"time"

	"github.com/countmill/countmill/internal/testing/faultproxy"
)

// A strike is a kind of fault and its victim.
type strike struct{ fault, victim string }

// chaosFaults has each kind as often as it should be drawn. Half-open connections are rare, because it
// takes a minute or more until a process gives one up.
var chaosFaults = slices.Concat(
	slices.Repeat([]string{"killed"}, 20), slices.Repeat([]string{"stopped"}, 8),
	slices.Repeat([]string{"cut off", "cut in answers", "delayed", "hung"}, 5), []string{"half-open"},
)

// An ending ends a fault, at first or for good.
type ending struct {
	at  time.Time
	end func()
}

// strike begins a random fault for a random time.
func (c *chaos) strike() {
	c.t.Helper()
	fault, v := chaosFaults[c.rand.IntN(len(chaosFaults))], c.victims[c.rand.IntN(len(c.victims))]
	length := time.Duration(200+c.rand.IntN(8000)) * time.Millisecond
	var end func()
	switch {
	case v.member == nil:
		if fault, end = c.strikeCache(fault); end == nil {
			return
		}
	case fault == "killed":
		v.member.kill()
	case fault == "stopped":
		end = v.member.pause()
	default:
		end = c.strikeWay(fault, v.ways[c.rand.IntN(len(v.ways))])
		length += 4 * time.Second // a third of the faults last longer than calls may take
	}
	c.struck[strike{fault, v.name}]++
	if end != nil {
		c.endings = append(c.endings, ending{time.Now().Add(length), end})
	}
}

// strikeWay disturbs the connections of one process to one server. If faults overlap, the connections
// recover with the last of them.
func (c *chaos) strikeWay(fault string, way *faultproxy.Proxy) (end func()) {
	switch fault {
	case "cut off":
		way.Cut()
	case "cut in answers": // by then many calls have taken effect, and their answers are lost
		delay := time.Duration(100+c.rand.IntN(400)) * time.Millisecond
		way.Delay(delay)
		c.endings = append(c.endings, ending{time.Now().Add(4 * delay), way.Cut})
	case "delayed":
		way.Delay(time.Duration(50+c.rand.IntN(1500)) * time.Millisecond)
	case "hung":
		way.Hang()
	case "half-open": // for good: these connections stay broken, and new ones can be made
		way.Orphan()
		c.orphaned = true
		return nil
	}
	c.faults[way]++
	return func() {
		if c.faults[way]--; c.faults[way] == 0 {
			way.Heal()
		}
	}
}

// strikeCache kills memcached, which loses all its data, or suspends it; one at a time.
func (c *chaos) strikeCache(fault string) (what string, end func()) {
	if c.cacheAway {
		return "", nil
	}
	c.cacheAway = true
	if fault == "stopped" {
		c.d.cache.Pause(c.t)
		return fault, func() { c.d.cache.Resume(c.t); c.cacheAway = false }
	}
	c.d.cache.Stop()
	return "killed", func() { c.d.cache.Start(c.t); c.cacheAway = false }
}

// end ends the faults that are due.
func (c *chaos) end(at time.Time) {
	var due []ending
	c.endings = slices.DeleteFunc(c.endings, func(e ending) bool {
		if e.at.After(at) {
			return false
		}
		due = append(due, e)
		return true
	})
	for _, e := range due {
		e.end()
	}
}
