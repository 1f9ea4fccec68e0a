package sim

import "github.com/countmill/countmill/store"

// applied sees a commit after it was applied. called is the step in which p asked for it.
func (w *World) applied(p *proc, c *store.Commit, called int) {
	w.parts.applied(p, c, called)
	w.totals.applied(c)
	w.series.applied(c)
	w.groups.applied(c)
}
