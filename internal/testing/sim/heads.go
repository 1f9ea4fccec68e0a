package sim

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
)

// journalKey seals the records of some schedules.
var journalKey = bytes.Repeat([]byte("k"), journal.MinKey)

// readHead makes the head of an hour that gets no record any more, as an aggregator does.
func (pc *pageClients) readHead(p *proc) {
	var head journal.Head
	since := time.Duration(pc.rng.IntN(3)) * time.Hour
	o := pc.newOp("head", func(o *op) {
		if !o.p.dead && o.err == nil {
			pc.kept.checkHead(head)
		}
	})
	pc.ask(o, p, func(ctx context.Context) error {
		page, err := p.jnl.Records(ctx, store.JournalQuery{To: store.JournalPlace{Position: 1}, Limit: 1})
		if err == nil {
			head, err = journal.ReadHead(ctx, journal.LastHour(page.SettledUntil).Add(-since), p.jnl.Records)
		}
		return err
	})
}

// checkHead: all heads of an hour are the same, and in the end the hour has them still.
func (jo *journalOracle) checkHead(head journal.Head) {
	if head.Records > 0 {
		jo.Heads++
	}
	jo.trace("head", nil, head.Digest, uint64(head.Records))
	jo.say(nil, "head of %s: %d records, %.8s", head.Hour.Format(clockFormat), head.Records, head.Digest)
	if before, ok := jo.heads[head.Hour]; ok && before != head {
		jo.violate("the hour %s has two heads, of %d and %d records", head.Hour.Format(clockFormat), before.Records, head.Records)
	}
	jo.heads[head.Hour] = head
}

// checkSeals does what "countmill journal check" does with the heads that were made, and finds nothing.
func (jo *journalOracle) checkSeals() {
	for _, hour := range slices.SortedFunc(maps.Keys(jo.heads), time.Time.Compare) {
		jo.checkHead(must(journal.ReadHead(background, hour, jo.db.fake.JournalRecords)))
	}
	if !jo.pages.sealed {
		return
	}
	sealer := must(journal.NewSealer(journalKey))
	for _, r := range jo.db.fake.Journaled() {
		content := must(journal.Decode(r.Data))
		if err := sealer.Check(&content, r.Key); err != nil {
			jo.violate("record %s of the journal %v", r.Place(), err)
		}
	}
}
