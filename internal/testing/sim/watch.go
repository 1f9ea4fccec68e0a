package sim

import "github.com/countmill/countmill/store"

func (w *World) handedOver(uuid string, payload []byte) { w.checkSealed(uuid, payload) }
func (w *World) published(payload []byte)               { w.noteParts(payload) }
func (w *World) delivered(l *parcel)                    { w.allow(l) }
func (w *World) acknowledged(d *delivery)               { w.checkAck(d) }

func (w *World) applied(p *proc, c *store.Commit, called int) {
	w.checkForbidden(p, c, called)
	for _, m := range c.Markers {
		w.mark(&m)
	}
	for _, a := range c.Adds {
		w.folded[a.Counter] += a.Delta
	}
}

func (w *World) reset(r *store.ResetRequest, done *store.ResetResult, by int) {
	w.removed[r.Counter] += done.Removed
	w.did[by] += done.Removed
}

func (w *World) removing(p *proc, keys []string) { w.checkDiscard(p, keys) }
func (w *World) discarding(keys []string)        { w.toss(keys) }
func (w *World) forgetting()                     { w.doom() }
