package sim

import "context"

// askPipeline asks a reader how far behind the aggregators are.
func (w *World) askPipeline() {
	lives := w.lives(reading)
	if len(lives) == 0 {
		return
	}
	p := pick(w, lives)
	o := w.newOp("pipeline")
	w.ask(o, p, func(ctx context.Context) error {
		o.pipeline = p.rdr.Pipeline(ctx)
		return nil
	})
}

// checkPipeline: a reader counts each aggregator once, whatever it was restarted as.
func (w *World) checkPipeline(o *op) {
	most := max(w.count(aggregating), w.count(node))
	if !o.p.dead && (o.pipeline.Workers > most || o.pipeline.Lag < 0) {
		w.violate("%s says that %d aggregators are alive, of at most %d, and that their lag is %s", o.p.name, o.pipeline.Workers, most, o.pipeline.Lag)
	}
}
