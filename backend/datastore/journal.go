package datastore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill/wire"
)

// The journal. Queries go by the indexed property place, because a query in descending order of keys
// would need an index that every installation has to create. The keys begin with random digits, or with
// a hash: places rise with time, and keys that rise would put all load on one tablet.

// recordRef is the key of a record.
func recordRef(k store.JournalKey) ref {
	return ref{kindJournal, hex.EncodeToString(k[8:]) + hex.EncodeToString(k[:8])}
}

// rowsOf begins the places of a counter's rows.
func rowsOf(counter string) string {
	return string(append(hashed(wire.ShardHash(counter, 0), counter, 1), ':'))
}

// addJournal inserts the records of a commit, as its last mutations.
func (s *Store) addJournal(mutations []*pb.Mutation, c *store.Commit) []*pb.Mutation {
	insert := func(r ref, place string, expireAt time.Time, data []byte) {
		mutations = append(mutations, s.insert(r, map[string]*pb.Value{
			"place": indexedText(place), "data": blob(data), "expire_at": instant(expireAt),
		}))
	}
	for i := range c.Records {
		r := &c.Records[i]
		insert(recordRef(r.Key), r.Place().String(), r.ExpireAt, r.Data)
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		name := rowsOf(r.Counter) + r.Place.String()
		insert(ref{kindRow, name}, name, r.ExpireAt, r.Data)
	}
	return mutations
}

// JournalMoment returns now: the service's clock does not go back.
func (s *Store) JournalMoment(now time.Time) (at time.Time, done func()) {
	return now.Truncate(time.Microsecond), func() {}
}

// JournalRecords returns the records of a range.
func (s *Store) JournalRecords(ctx context.Context, q store.JournalQuery) (page store.JournalPage, err error) {
	err = s.journalPage(ctx, kindJournal, "", q, &page, takeRecord(&page))
	if q.Last {
		slices.Reverse(page.Records)
	}
	return page, err
}

// JournalView opens a view that has the journal too.
func (s *Store) JournalView() store.JournalView { return &view{store: s} }

// JournalRecords returns the records of a range as of the view's moment, settled or not.
func (v *view) JournalRecords(ctx context.Context, q store.JournalQuery) (page store.JournalPage, err error) {
	err = v.journalPage(ctx, kindJournal, "", q, &page, takeRecord(&page))
	if q.Last {
		slices.Reverse(page.Records)
	}
	return page, err
}

// JournalRows returns the rows of a counter in a range as of the view's moment.
func (v *view) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (page store.JournalPage, err error) {
	err = v.journalPage(ctx, kindRow, rowsOf(counter), q, &page, takeRow(&page, counter))
	if q.Last {
		slices.Reverse(page.Rows)
	}
	return page, err
}

func (v *view) journalPage(ctx context.Context, kind, prefix string, q store.JournalQuery, page *store.JournalPage, visit func(store.JournalPlace, *fields) int) error {
	ctx, cancel, err := v.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if (q.To == store.JournalPlace{}) {
		q.To = store.JournalAt(wire.MaxTime)
	}
	when, err := v.store.queryJournal(ctx, v.when, kind, prefix, q, page, visit)
	if err != nil {
		return v.store.explain("read the journal", err)
	}
	if err := v.pin(when); err != nil {
		return err
	}
	page.SettledUntil = v.asOf.Add(-store.JournalSettle).Truncate(time.Microsecond)
	return v.store.confirm(ctx, "read the journal")
}

// takeRow returns a function that adds a row of the counter to the page.
func takeRow(page *store.JournalPage, counter string) func(store.JournalPlace, *fields) int {
	return func(p store.JournalPlace, f *fields) int {
		r := store.JournalRow{Counter: counter, Place: p, ExpireAt: f.instant("expire_at"), Data: f.blob("data")}
		page.Rows = append(page.Rows, r)
		return len(r.Data)
	}
}

// takeRecord returns a function that adds a record to the page.
func takeRecord(page *store.JournalPage) func(store.JournalPlace, *fields) int {
	return func(p store.JournalPlace, f *fields) int {
		r := store.JournalRecord{Key: p.Key, ExpireAt: f.instant("expire_at"), Data: f.blob("data")}
		page.Records = append(page.Records, r)
		return len(r.Data)
	}
}

// JournalRows returns the rows of a counter in a range.
func (s *Store) JournalRows(ctx context.Context, counter string, q store.JournalQuery) (page store.JournalPage, err error) {
	err = s.journalPage(ctx, kindRow, rowsOf(counter), q, &page, takeRow(&page, counter))
	if q.Last {
		slices.Reverse(page.Rows)
	}
	return page, err
}

// journalPage makes a query for one entity more than the answer may have. Its upper end needs the
// service's time, which it reads first.
func (s *Store) journalPage(ctx context.Context, kind, prefix string, q store.JournalQuery, page *store.JournalPage, visit func(store.JournalPlace, *fields) int) error {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	_, now, err := s.compareMeta(ctx)
	if err != nil {
		return err
	}
	page.SettledUntil = now.Add(-store.JournalSettle).Truncate(time.Microsecond)
	end := store.JournalAt(page.SettledUntil.Add(time.Microsecond))
	if (q.To == store.JournalPlace{}) || q.To.Compare(end) > 0 {
		q.To = end
	}
	if q.From.Compare(q.To) >= 0 {
		return nil
	}
	if _, err = s.queryJournal(ctx, nil, kind, prefix, q, page, visit); err != nil {
		return s.explain("read the journal", err)
	}
	return s.confirm(ctx, "read the journal")
}

// errFull ends the query of a page that is full, so that the rest of its entities, of up to 512 KiB each, is not read.
var errFull = errors.New("the page is full")

// queryJournal visits the entities of a range that has an end, at the moment when or at the newest one. Rows of
// other counters, whose names begin with this one's, have no place in the page: it goes on after them.
func (s *Store) queryJournal(ctx context.Context, when *timestamppb.Timestamp, kind, prefix string, q store.JournalQuery, page *store.JournalPage, visit func(store.JournalPlace, *fields) int) (*timestamppb.Timestamp, error) {
	query, limit, size, visited := journalQuery(kind, prefix, q), q.Limit+1, 0, 0
	for {
		found := 0
		read, err := s.run(ctx, at(when), query, limit, func(e *pb.Entity) error {
			found++
			f := fields{entity: e}
			text, ok := strings.CutPrefix(f.text("place"), prefix)
			p, err := store.ParseJournalPlace("place", text)
			if !ok || err != nil {
				return f.err
			}
			if visited == q.Limit || size >= store.JournalPageBytes {
				page.More = true
				return errFull
			}
			visited, size = visited+1, size+visit(p, &f)
			return f.err
		})
		if when = read; errors.Is(err, errFull) {
			return when, nil
		}
		if err != nil || found < limit {
			return when, err
		}
		limit = maxKeys // there may be many
	}
}

func journalQuery(kind, prefix string, q store.JournalQuery) *pb.Query {
	bound := func(op pb.PropertyFilter_Operator, p store.JournalPlace) *pb.Filter {
		return &pb.Filter{FilterType: &pb.Filter_PropertyFilter{PropertyFilter: &pb.PropertyFilter{
			Property: &pb.PropertyReference{Name: "place"}, Op: op, Value: indexedText(prefix + p.String()),
		}}}
	}
	direction := pb.PropertyOrder_ASCENDING
	if q.Last {
		direction = pb.PropertyOrder_DESCENDING
	}
	return &pb.Query{
		Kind: []*pb.KindExpression{{Name: kind}},
		Filter: &pb.Filter{FilterType: &pb.Filter_CompositeFilter{CompositeFilter: &pb.CompositeFilter{Op: pb.CompositeFilter_AND, Filters: []*pb.Filter{
			bound(pb.PropertyFilter_GREATER_THAN_OR_EQUAL, q.From), bound(pb.PropertyFilter_LESS_THAN, q.To),
		}}}},
		Order: []*pb.PropertyOrder{{Property: &pb.PropertyReference{Name: "place"}, Direction: direction}},
	}
}

// ReplaceRecord makes one attempt at a transaction, also with ReadOnly.
func (s *Store) ReplaceRecord(ctx context.Context, old, next *store.JournalRecord, rows []store.JournalRow) error {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	r := recordRef(old.Key)
	err = s.readModifyWrite(ctx, []ref{r}, func(found map[ref]*pb.Entity, _ time.Time) ([]*pb.Mutation, error) {
		e := found[r]
		if e == nil {
			return nil, fmt.Errorf("the record is gone: %w", store.ErrChanged)
		}
		f := fields{entity: e}
		if data := f.blob("data"); f.err == nil && !bytes.Equal(data, old.Data) {
			return nil, fmt.Errorf("another change was first: %w", store.ErrChanged)
		}
		if f.err != nil {
			return nil, f.err
		}
		mutations := []*pb.Mutation{{
			Operation:    &pb.Mutation_Upsert{Upsert: &pb.Entity{Key: s.key(r), Properties: map[string]*pb.Value{"data": blob(next.Data)}}},
			PropertyMask: &pb.PropertyMask{Paths: []string{"data"}},
		}}
		for i := range rows {
			row := ref{kindRow, rowsOf(rows[i].Counter) + rows[i].Place.String()}
			mutations = append(mutations, s.remove(row))
		}
		return mutations, nil
	})
	if err != nil {
		return err
	}
	return s.confirm(ctx, "replace a record of the journal")
}

// SweepJournal does nothing: TTL policies on expire_at of CountmillJournal and CountmillJournalRow remove
// them.
func (s *Store) SweepJournal(context.Context) error { return nil }
