package reader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// MaxRows is the most rows of one call of Series.
const MaxRows = 10_000

// A SeriesQuery asks for rows of counters.
type SeriesQuery struct {
	Counters []string
	Step     Step
	// From is rounded down and To up to whole rows, in the zone of From. Both are from the year
	// 2000 to 2200.
	From, To time.Time
}

// A Series is sums over time, all as of one moment.
type Series struct {
	// Rows are by counter, in the order asked, and by time. A row without increments is 0.
	Rows []Row
	// AsOf is that moment, by the store's clock: the rows include every fold that was committed by
	// then.
	AsOf time.Time
	// Begin is the latest of the moments from which the counters' rules are complete.
	Begin time.Time
	// Unbucketed is the part of the counters' sums that no series ever had, resets aside: it was
	// counted without a rule.
	Unbucketed int128.Int
}

// A Row is the sum of the increments between Time and End.
type Row struct {
	Counter   string
	Time, End time.Time
	Value     int64
	// Overflow means that the sum does not fit 64 bits. Value is then 0, and an *OverflowError came with the row.
	Overflow bool
	// Partial is true for a row that is not over, or not wholly covered by the rule.
	Partial bool
}

// A NoSeriesError names a counter that keeps no series. No rule has it.
type NoSeriesError struct{ Counter string }

func (e *NoSeriesError) Error() string {
	return fmt.Sprintf("counter %q keeps no series: add a rule with countmill rule add series %s", e.Counter, store.SuggestRule(e.Counter))
}

// Series reads rows from the store, at a moment that is not before the call.
//
// An error matches countmill.ErrInvalid if the query is wrong, countmill.ErrUnavailable if the store
// cannot be read, and countmill.ErrOverflow, as an *OverflowError, if a row does not fit 64 bits; or
// it is a *NoSeriesError. Only with an *OverflowError come rows: a row that does not fit has Overflow, and all others are good.
func (r *Reader) Series(ctx context.Context, q SeriesQuery) (Series, error) {
	for i, c := range q.Counters {
		if err := countmill.CheckName(c); err != nil {
			return Series{}, atIndex(err, i, len(q.Counters))
		}
	}
	bounds, err := q.bounds()
	if err != nil {
		return Series{}, err
	}
	if err := r.checkGroups(ctx, q.Counters); err != nil {
		return Series{}, err
	}
	rules, err := r.rulesOf(ctx, q.Counters)
	if err != nil {
		return Series{}, err
	}
	view := r.store.View()
	defer view.Close()
	s := &seriesReading{r: r, view: view, q: &q, bounds: bounds, rules: rules}
	return s.read(ctx)
}

// The years in which a row can be asked for. Since then every zone differs from UTC by a multiple of
// 15 minutes.
var firstRow, lastRow = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// bounds returns the beginnings of the rows, and the end of the last one.
func (q *SeriesQuery) bounds() ([]time.Time, error) {
	for field, t := range map[string]time.Time{"from": q.From, "to": q.To} {
		if t.Before(firstRow) || t.After(lastRow) {
			return nil, &countmill.FieldError{Field: field, Problem: "is out of range", Limit: "the years 2000 to 2199"}
		}
	}
	if !q.From.Before(q.To) {
		return nil, &countmill.FieldError{Field: "to", Problem: "is not after from", Limit: "later than from"}
	}
	most := MaxRows / max(len(q.Counters), 1)
	bounds := []time.Time{q.Step.floor(q.From)}
	for last := bounds[0]; last.Before(q.To); bounds = append(bounds, last) {
		if len(bounds) > most {
			return nil, &countmill.FieldError{
				Field: "step", Problem: "gives too many rows", Limit: fmt.Sprintf("%d rows, all counters together: ask for a longer step or a shorter time", MaxRows),
			}
		}
		last = q.Step.next(last)
	}
	return bounds, nil
}

// rulesOf returns the rules, by which each counter has a series. It asks the store again before it
// says that a counter has none: the rule may be new.
func (r *Reader) rulesOf(ctx context.Context, counters []string) (*store.Rules, error) {
	if err := r.checkStore(ctx); err != nil {
		return nil, err
	}
	rules := r.settings.Load().Rules
	if without(rules, counters) == "" {
		return rules, nil
	}
	if err := r.askStore(ctx); err != nil {
		return nil, err
	}
	rules = r.settings.Load().Rules
	if name := without(rules, counters); name != "" {
		return nil, &NoSeriesError{Counter: name}
	}
	return rules, nil
}

// without returns the first counter that has no rule; empty if all have one.
func without(rules *store.Rules, counters []string) string {
	at := slices.IndexFunc(counters, func(c string) bool { return rules.LastSeriesOf(c) == nil })
	if at < 0 {
		return ""
	}
	return counters[at]
}

// A seriesReading reads the series of several counters in one view.
type seriesReading struct {
	r      *Reader
	view   store.View
	q      *SeriesQuery
	bounds []time.Time
	rules  *store.Rules
	asOf   time.Time
}

func (s *seriesReading) read(ctx context.Context) (Series, error) {
	began := s.r.clock.Moment()
	rd := s.r.newReading(s.view)
	for _, c := range slices.Compact(slices.Sorted(slices.Values(s.q.Counters))) {
		rd.ask(c)
	}
	// Totals and series are of one view.
	if err := rd.run(ctx); err != nil {
		return Series{}, err
	}
	s.asOf = s.view.ReadTime()
	s.r.clock.Learn(s.asOf, began)
	if err := s.r.checkRead(ctx, rd, s.asOf); err != nil {
		return Series{}, err
	}
	found := Series{AsOf: s.asOf}
	curves := make([]curve, len(s.q.Counters))
	for i, c := range s.q.Counters {
		covered, err := s.coverage(c)
		if err != nil {
			return Series{}, err
		}
		curves[i] = curve{rd.owner[c], covered}
		found.Begin = later(found.Begin, covered.begin)
	}
	var err error
	if found.Rows, err = s.rows(ctx, curves); err != nil {
		return Series{}, err
	}
	for _, t := range rd.partials {
		found.Unbucketed = found.Unbucketed.Add(t.sum.Sub(t.bucketed))
	}
	if at := slices.IndexFunc(found.Rows, func(r Row) bool { return r.Overflow }); at >= 0 {
		return found, &OverflowError{Counter: found.Rows[at].Counter}
	}
	return found, nil
}

// begin is the first minute of a complete series. That of a group begins with its index too: an increment
// is folded at most store.SeriesAhead before its time.
func begin(rules *store.Rules, counter string) time.Time {
	at := rules.LastSeriesOf(counter).Begin()
	if x := rules.IndexOf(counter); x != nil {
		at = later(at, groupsBegin(x))
	}
	return at
}

// groupsBegin is the first minute of which the groups of an index have all increments.
func groupsBegin(x *store.Index) time.Time {
	return x.Since.Add(store.SeriesAhead + time.Minute - time.Nanosecond).Truncate(time.Minute)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// A curve is a counter whose rows are read.
type curve struct {
	*partial
	coverage
}

// rows reads the rows of all curves. Those of a deleted counter are empty.
func (s *seriesReading) rows(ctx context.Context, curves []curve) ([]Row, error) {
	times := make([]Row, len(s.bounds)-1)
	for i := range times {
		times[i] = Row{Time: s.bounds[i], End: s.bounds[i+1]}
	}
	rows := slices.Repeat(times, len(curves))
	from, to := times[0].Time, times[len(times)-1].End
	begin := to
	var read []*partial
	var at []int
	for i, c := range curves {
		for j := range times {
			row := &rows[i*len(times)+j]
			row.Counter, row.Partial = c.counter, !c.has(row)
		}
		if !c.exists || c.deleted() || to.Before(c.kept) {
			continue
		}
		read, at = append(read, c.partial), append(at, i)
		if own := later(from, c.kept); own.Before(begin) {
			begin = own
		}
	}
	return rows, s.r.eachSeries(ctx, s.view, read, begin, to, func(i int, buckets []store.Bucket) {
		c, first := curves[at[i]], at[i]*len(times)
		kept := firstMinute(later(from, c.kept))
		for len(buckets) > 0 && buckets[0].Minute < kept {
			buckets = buckets[1:]
		}
		sumRows(rows[first:first+len(times)], buckets)
	})
}

// firstMinute is that of the quarter hour of a time.
func firstMinute(t time.Time) wire.Minute { return store.QuarterOf(wire.MinuteOf(t)) }

// sumRows sums rows that ascend and may overlap.
func sumRows(rows []Row, buckets []store.Bucket) {
	for i := range rows {
		sumRow(&rows[i], buckets)
		for len(buckets) > 0 && i+1 < len(rows) && !endOf(buckets[0]).After(rows[i+1].Time) {
			buckets = buckets[1:]
		}
	}
}

func endOf(b store.Bucket) time.Time {
	if b.Quarter {
		return b.Minute.Time().Add(quarter * time.Minute)
	}
	return b.Minute.Time().Add(time.Minute)
}

// seriesAtOnce is how many calls for series an answer makes at once. The store may be behind a network, and one after the other
// would take long.
const seriesAtOnce = 4

// eachSeries reads the series of counters, several with each call, and visits them. Visits may run beside each other.
func (r *Reader) eachSeries(ctx context.Context, view store.View, counters []*partial, from, to time.Time, visit func(i int, buckets []store.Bucket)) error {
	each := seriesKeys(from, to)
	lot := turnKeys / each
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(seriesAtOnce)
	for first := 0; first < len(counters); first += lot {
		var of []store.Record
		for _, t := range counters[first:min(first+lot, len(counters))] {
			of = append(of, store.Record{Counter: t.counter, Shards: t.shards})
		}
		group.Go(func() error {
			return r.call(ctx, len(of)*each, "reading series", func(ctx context.Context) error {
				found, err := view.Series(ctx, of, firstMinute(from), wire.MinuteOf(to))
				for i, buckets := range found {
					visit(first+i, buckets)
				}
				return err
			})
		})
	}
	return group.Wait()
}

// seriesKeys is about the work of reading a series: its days, with up to 96 quarter hours each, cost as much as keys.
func seriesKeys(from, to time.Time) int {
	return min(daysCost*(int(to.Sub(from).Hours()/24)+1), turnKeys)
}

// daysCost is a guess for the largest days.
const daysCost = 5

// sumRow sums the buckets that begin in the row. A quarter hour that is longer than the row says
// nothing about it.
func sumRow(row *Row, buckets []store.Bucket) {
	var total int128.Int
	for _, b := range buckets {
		begin := b.Minute.Time()
		if !begin.Before(row.End) {
			break
		}
		if b.Quarter && row.End.Sub(row.Time) < quarter*time.Minute {
			row.Partial = row.Partial || endOf(b).After(row.Time)
			continue
		}
		if begin.Before(row.Time) {
			continue
		}
		total = total.Add(b.Sum)
	}
	v, fits := total.Int64()
	if row.Overflow = !fits; fits {
		row.Value = v
	}
}

// A coverage says which rows of a counter are whole.
type coverage struct {
	begin, ended time.Time    // of the rule; a zero ended is never
	filled       store.Period // an import made it complete
	kept         time.Time    // older rows were removed
	asOf         time.Time
}

// has reports whether the row is over and whole.
func (c *coverage) has(row *Row) bool {
	complete := !row.Time.Before(c.begin) || c.filled.Has(row.Time, row.End)
	return complete && !row.End.After(c.asOf) && !row.Time.Before(c.kept) && (c.ended.IsZero() || !row.End.After(c.ended))
}

// coverage refuses rows of minutes that are not kept.
func (s *seriesReading) coverage(counter string) (coverage, error) {
	rule, keep := s.rules.LastSeriesOf(counter), s.rules.KeepOf(counter)
	c := coverage{begin: begin(s.rules, counter), filled: rule.Filled, ended: rule.Ended, kept: s.asOf.Add(-keep.Quarters), asOf: s.asOf}
	if s.rules.IndexOf(counter) != nil {
		c.filled = store.Period{} // nobody said so of groups
	}
	if !s.q.Step.fine() {
		return c, nil
	}
	// A minute more: from = now - 6h was said a moment ago.
	if c.kept = s.asOf.Add(-keep.Minutes - time.Minute).Truncate(time.Minute); s.q.From.Before(c.kept) {
		return c, &countmill.FieldError{
			Field: "step", Problem: "is finer than what is kept of that time",
			Limit: fmt.Sprintf("15m or longer, or a from at most %s ago", keep.Minutes),
		}
	}
	c.kept = s.q.Step.floor(c.kept.In(s.q.From.Location()))
	return c, nil
}

// deleted reports whether the counter is hidden: it was deleted, and has counted nothing since.
func (t *partial) deleted() bool {
	return !t.reset.DeletedAt.IsZero() && t.since() == int128.Int{}
}
