package plan

import (
	"fmt"
	"math"
)

// notes adds the limits that bind to p.Notes.
func (p *Plan) notes(of []class, b batch, w window) {
	l, c := p.Load, &p.Countmill
	say := func(ok bool, format string, args ...any) {
		if ok {
			p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
		}
	}
	windows := float64(p.Aggregators) / w.every
	say(w.beyond, "does not keep up: --aggregators %d allows %.0f commits/s, at %s each and %d at once, and more are needed; increments wait ever longer",
		p.Aggregators, float64(p.Aggregators)*commitsAtOnce/l.CommitTime.Seconds(), l.CommitTime, commitsAtOnce)
	say(w.waits, "windows wait for commits: %.0f ms from one to the next instead of %.0f; more aggregators shorten that",
		w.every*1000, 1000*l.due(float64(l.Publishers)/b.every/float64(p.Aggregators), p.Aggregators))
	capped := func(what string, of []class, in []float64) {
		some, over := 0.0, 0.0
		for i, class := range of {
			if commits := in[i] * windows / l.ShardRate; commits > float64(l.MaxShards) {
				some += class.counters
				over = max(over, commits/float64(l.MaxShards))
			}
		}
		say(some > 0, "%d shards, which a counter gets by itself, are too few for %.0f of the %s, which get up to %.1f times the commits that so many take; fewer aggregators or a longer --count-within",
			l.MaxShards, some, what, over)
	}
	capped("counters", of, w.in)
	capped("groups", classesOf(b.groups), w.ofGroups)
	say(w.full, "windows close before their linger, at %d messages, %d counters and markers or %d MiB", windowMessages, windowEntities, windowBytes>>20)
	say(b.full, "publishers' lingers end early, at %d counters or %d MiB: after %.0f ms", openEntries, openBytes>>20, b.every*1000)
	stream := float64(l.Publishers) / b.every * b.bytes / float64(p.Aggregators)
	say(stream > streamBytes, "an aggregator gets %.0f MB/s, where a stream of Pub/Sub carries some %.0f: more aggregators", stream/1e6, streamBytes/1e6)
	say(c.MarkersWritten > 2*c.ShardsWritten && l.IDs < 0.5, "markers are %.0f %% of what is written: a longer --count-within or fewer publishers save most",
		100*c.MarkersWritten/c.EntitiesWritten)
	say(l.IDs > 0 && l.Rate*l.IDs > c.MarkersWritten/2, "increments with ids have a marker each, %.0f %% of what is written; an Idempotency-Key has one for 24 counters",
		100*l.Rate*l.IDs/c.EntitiesWritten)
	say(c.ShardsWritten > 0.5*l.Rate && l.Rate > 1, "little is added up: %.0f shards are written for 100 increments; a longer --count-within helps",
		100*c.ShardsWritten/l.Rate)
	say(c.RecordsRead > 10*float64(l.Counters)*float64(p.Aggregators)/recordsFor, "an aggregator remembers %.1f million counters, and reads %.0f records/s for the others",
		recordsKept/1e6, c.RecordsRead)
	p.boardNotes(say)
	p.indexNotes(say)
	say(c.EntitiesWritten > 500, "a new database takes some 500 writes/s at first and half as many again every 5 minutes: begin with a part of the load, %.0f minutes before all of it",
		5*math.Ceil(math.Log(max(c.EntitiesWritten/500, 1))/math.Log(1.5)))
}

func (p *Plan) boardNotes(say func(ok bool, format string, args ...any)) {
	l, c := p.Load, &p.Countmill
	if l.BoardRate == 0 {
		return
	}
	took := c.BoardScan / l.BoardRate
	say(true, "a scan for a leaderboard reads %.0f entities, a record, the shards and %d days of each counter, in %.1f minutes, for %.2f dollars", c.BoardScan, l.BoardDays, took/60, c.BoardScanDollars)
	say(took > boardWithin, "no scan ends: Datastore forgets its moment after %.0f minutes; --board-rate %.0f or more", boardWithin/60, math.Ceil(c.BoardScan/boardWithin))
}

func (p *Plan) indexNotes(say func(ok bool, format string, args ...any)) {
	b := &p.Countmill.IndexBuild
	say(p.Load.Groups > 0, "the build of the index reads %.0f entities, a shard of each counter or more, and writes %.0f, for %.2f dollars; each day workers read as many again",
		b.Read, b.Written, b.Dollars)
}
