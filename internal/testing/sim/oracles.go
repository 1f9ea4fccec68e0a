package sim

import (
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// The oracles watch the bus and the store.
type oracles struct {
	*partOracle
	totals *totalOracle
	series *seriesOracle
	groups *groupOracle
	kept   *journalOracle
	values *valueOracle
	ledger *ledger
}

var (
	_ busWatch   = (*oracles)(nil)
	_ storeWatch = (*oracles)(nil)
)

func newOracles(k *kernel, db *database, bus *broker) *oracles {
	o := &oracles{partOracle: newPartOracle(k, db, bus), totals: newTotalOracle(k, db), series: newSeriesOracle(k, db), groups: newGroupOracle(k, db), kept: newJournalOracle(k, db), values: newValueOracle(k)}
	o.totals.groups = o.groups
	o.ledger = &ledger{kernel: k, db: db, totals: o.totals, series: o.series, kept: o.kept, used: make(map[string]int)}
	return o
}

func (o *oracles) applied(p *proc, c *store.Commit, called int) {
	o.partOracle.applied(p, c, called)
	o.totals.applied(c)
	o.series.applied(c)
	o.groups.applied(c)
	o.kept.applied(c)
}

func (o *oracles) published(payload []byte) {
	o.partOracle.published(payload)
	o.series.published(payload)
}

func (o *oracles) ruled(rules *store.Rules) { o.groups.ruled(rules) }

func (o *oracles) gave(name string, id wire.PartID, g store.Given) { o.values.gave(name, id, g) }

func (o *oracles) reset(r *store.ResetRequest, done *store.ResetResult, by int) {
	o.totals.reset(r, done, by)
}
