package datastore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countmill/countmill/store/engine"
)

const (
	// scanPage is the number of rows of a call: a shard with a full ring has some 3 KB.
	scanPage = 500
	// keysPage is the least number of keys of a call for keys alone, which cost nothing.
	keysPage = 1000
)

// A scan reads a range page by page. It is an engine.Rows.
type scan struct {
	view    *view
	ctx     context.Context
	r       engine.Range
	fields  []engine.FieldID
	queries []*pb.Query // one after the other
	page    int
	fetched int // of the page
	batch   []*pb.EntityResult
	row     engine.Row
	err     error
}

// Scan makes no call. The bounds of its query may have too many rows, never too few: Next leaves those out.
func (v *view) Scan(ctx context.Context, r engine.Range, fields ...engine.FieldID) engine.Rows {
	s := &scan{view: v, ctx: ctx, r: r, fields: fields, page: r.Page}
	if s.page == 0 {
		s.page = scanPage
	}
	s.queries = v.d.rangeQueries(&r)
	if len(fields) == 0 {
		s.page = max(s.page, keysPage)
		for _, q := range s.queries {
			q.Projection = keysAlone
		}
	}
	if v.closed.Load() {
		s.queries, s.err = nil, errors.New("the view is closed")
	}
	return s
}

const keyProperty = "__key__"

var keysAlone = []*pb.Projection{{Property: &pb.PropertyReference{Name: keyProperty}}}

// rangeQueries makes the queries of a range, none if the range is empty. A range that begins among the rows of a name has one more for the
// others of that name: it reads none again.
func (d *database) rangeQueries(r *engine.Range) (queries []*pb.Query) {
	const from, after, before = pb.PropertyFilter_GREATER_THAN_OR_EQUAL, pb.PropertyFilter_GREATER_THAN, pb.PropertyFilter_LESS_THAN
	kind, first, end, op := &d.kinds[r.Kind], r.From, r.To, from
	if r.After {
		op = after
	}
	if first.Name < r.Prefix {
		first, op = engine.Key{Name: r.Prefix}, from
	}
	if next := kind.Following(r.Prefix); next != "" && (end == engine.Key{} || end.Name > next) {
		end = engine.Key{Name: next}
	}
	first.Kind, end.Kind = r.Kind, r.Kind
	bounded := end != engine.Key{Kind: r.Kind}
	if bounded && r.Compare(first, end) >= 0 {
		return nil
	}
	property, lower, upper := keyProperty, d.keyValue(first), d.keyValue(end)
	if r.ByName && hasName(kind) {
		property, lower, upper = nameProperty, nameValue(kind, first.Name), nameValue(kind, end.Name)
		if end.Place != 0 || end.Part != 0 { // some rows of this name are in the range
			upper = nameValue(kind, end.Name+"\x00")
		}
		if among := first.Place != 0 || first.Part != 0 || op == after; among && !r.Reverse {
			queries = append(queries, d.query(kind, keyProperty, compare(property, pb.PropertyFilter_EQUAL, lower), compare(keyProperty, op, d.keyValue(first))))
			op = after
		} else if among {
			op = from
		}
	}
	var filters []*pb.Filter
	if first != (engine.Key{Kind: r.Kind}) {
		filters = append(filters, compare(property, op, lower))
	}
	if bounded {
		filters = append(filters, compare(property, before, upper))
	}
	q := d.query(kind, property, filters...)
	if r.Reverse {
		q.Order[0].Direction = pb.PropertyOrder_DESCENDING
	}
	return append(queries, q)
}

// query makes a query in the order of a property.
func (d *database) query(kind *engine.Kind, property string, filters ...*pb.Filter) *pb.Query {
	q := &pb.Query{
		Kind:  []*pb.KindExpression{{Name: kindName(kind)}},
		Order: []*pb.PropertyOrder{{Property: &pb.PropertyReference{Name: property}, Direction: pb.PropertyOrder_ASCENDING}},
	}
	if len(filters) > 0 {
		q.Filter = &pb.Filter{FilterType: &pb.Filter_CompositeFilter{CompositeFilter: &pb.CompositeFilter{Op: pb.CompositeFilter_AND, Filters: filters}}}
	}
	return q
}

func compare(property string, op pb.PropertyFilter_Operator, v *pb.Value) *pb.Filter {
	return &pb.Filter{FilterType: &pb.Filter_PropertyFilter{PropertyFilter: &pb.PropertyFilter{
		Property: &pb.PropertyReference{Name: property}, Op: op, Value: v,
	}}}
}

func (d *database) keyValue(k engine.Key) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_KeyValue{KeyValue: d.key(d.ref(k))}}
}

// Next makes a call for each page.
func (s *scan) Next() *engine.Row {
	for {
		if len(s.batch) == 0 && len(s.queries) == 0 {
			return nil
		}
		if len(s.batch) == 0 {
			if s.err = s.fetch(); s.err != nil {
				s.Close()
			}
			continue
		}
		e := s.batch[0]
		s.batch = s.batch[1:]
		r := refOf(e.GetEntity().GetKey())
		key, ok := s.view.d.keyOf(s.r.Kind, r)
		name := e.GetEntity().GetProperties()[nameProperty]
		if found := name.GetStringValue() + string(name.GetBlobValue()); !ok || found != "" && found != key.Name {
			key = engine.Key{Kind: s.r.Kind, Name: cmp.Or(found, r.name)}
			s.row = engine.Row{Key: key, Exists: true, Updated: updated(e), Bad: fmt.Sprintf("its key %q is not that of a row of this name", r.name)}
		} else if !s.r.Has(key) {
			continue
		} else {
			s.row = s.view.d.rowOf(key, e, s.fields)
		}
		return &s.row
	}
}

func (s *scan) fetch() error {
	ctx, cancel, err := s.view.call(s.ctx)
	if err != nil {
		return err
	}
	defer cancel()
	d := s.view.d
	q, limit := s.queries[0], s.page-s.fetched%s.page
	batch, err := d.runQuery(ctx, q, limit, at(s.view.when))
	if err != nil {
		return s.view.explain("query", err)
	}
	if err := s.view.pin(batch.GetReadTime()); err != nil {
		return err
	}
	s.batch, q.StartCursor = batch.GetEntityResults(), batch.GetEndCursor()
	if s.fetched += len(s.batch); batch.GetMoreResults() != pb.QueryResultBatch_NOT_FINISHED && len(s.batch) < limit {
		s.queries = s.queries[1:]
	}
	return d.confirm(ctx, "query")
}

// runQuery makes one call.
func (d *database) runQuery(ctx context.Context, q *pb.Query, limit int, options *pb.ReadOptions) (*pb.QueryResultBatch, error) {
	q.Limit = wrapperspb.Int32(int32(min(limit, math.MaxInt32)))
	resp, err := d.stub.RunQuery(ctx, &pb.RunQueryRequest{
		ProjectId: d.cfg.Project, DatabaseId: d.cfg.Database, PartitionId: d.partition(),
		ReadOptions: options, QueryType: &pb.RunQueryRequest_Query{Query: q},
	})
	return resp.GetBatch(), err
}

// Err returns why the scan ended early.
func (s *scan) Err() error { return s.err }

// Close ends the scan.
func (s *scan) Close() { s.batch, s.queries = nil, nil }

// Due is a query of keys alone, by the index of the field. after is the cursor of a page.
func (d *database) Due(ctx context.Context, kind engine.KindID, before int64, after string, limit int) (keys []engine.Key, next string, err error) {
	ctx, cancel, err := d.call(ctx)
	if err != nil {
		return nil, "", err
	}
	defer cancel()
	k := &d.kinds[kind]
	property, _ := propertyOf(k, k.Due)
	q := d.query(k, property,
		compare(property, pb.PropertyFilter_GREATER_THAN, number(k, k.Due, 0)),
		compare(property, pb.PropertyFilter_LESS_THAN_OR_EQUAL, number(k, k.Due, before)))
	q.Projection, q.StartCursor = keysAlone, []byte(after)
	for {
		batch, err := d.runQuery(ctx, q, limit, nil)
		if err != nil {
			return nil, "", d.explain("list due rows", err, false)
		}
		for _, e := range batch.GetEntityResults() {
			if key, ok := d.keyOf(kind, refOf(e.GetEntity().GetKey())); ok {
				keys = append(keys, key)
			}
		}
		limit -= len(batch.GetEntityResults())
		q.StartCursor = batch.GetEndCursor()
		if limit <= 0 {
			return keys, string(q.StartCursor), d.confirm(ctx, "list due rows")
		}
		if batch.GetMoreResults() != pb.QueryResultBatch_NOT_FINISHED {
			return keys, "", d.confirm(ctx, "list due rows")
		}
	}
}
