package datastore

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Anybody can find a name that begins with another one and has the same hash. Its rows are among those of the other
// counter, and hide none of them.
func TestRowsAmongThoseOfAnotherCounter(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	const others = 7
	c, places := new(store.Commit), []store.JournalPlace{}
	for i := range 3 {
		place := store.JournalPlace{Key: store.NewJournalKey(time.Now().Add(-store.JournalSettle-time.Hour), uint64(i))}
		c.Rows = append(c.Rows, store.JournalRow{Counter: "a", Place: place, ExpireAt: time.Now().Add(time.Hour), Data: []byte("row")})
		places = append(places, place)
	}
	mutations := s.addJournal(nil, c)
	for i := range others {
		name := rowsOf("a") + fmt.Sprintf("0001:%d:", i) + places[0].String()
		mutations = append(mutations, s.insert(ref{kindRow, name}, map[string]*pb.Value{
			"place": indexedText(name), "data": blob([]byte("row of another counter")), "expire_at": instant(c.Rows[0].ExpireAt),
		}))
	}
	if err := s.commitLots(t.Context(), mutations); err != nil {
		t.Fatal(err)
	}
	for limit := 1; limit <= others+4; limit++ {
		var got []store.JournalPlace
		for q := (store.JournalQuery{Limit: limit}); ; q.From = got[len(got)-1].Next() {
			page, err := s.JournalRows(t.Context(), "a", q)
			if err != nil || len(page.Rows) == 0 || len(page.Rows) > limit {
				t.Fatalf("limit %d: a page of %d rows after %d of 3, %v", limit, len(page.Rows), len(got), err)
			}
			for i := range page.Rows {
				got = append(got, page.Rows[i].Place)
			}
			if !page.More {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(places) {
			t.Errorf("limit %d: rows at %v, want %v", limit, got, places)
		}
	}
}

// largeRecords is a service that answers a query with one record of 1 MiB at a time.
type largeRecords struct {
	pb.DatastoreClient
	asked int
}

func (l *largeRecords) RunQuery(context.Context, *pb.RunQueryRequest, ...grpc.CallOption) (*pb.RunQueryResponse, error) {
	l.asked++
	place := store.JournalAt(time.Unix(int64(l.asked), 0))
	e := &pb.Entity{Properties: map[string]*pb.Value{
		"place": indexedText(place.String()), "data": blob(make([]byte, 1<<20)), "expire_at": instant(time.Unix(1e9, 0)),
	}}
	return &pb.RunQueryResponse{Batch: &pb.QueryResultBatch{
		EntityResults: []*pb.EntityResult{{Entity: e}}, MoreResults: pb.QueryResultBatch_NOT_FINISHED,
	}}, nil
}

// A full page of the journal reads one record more than it has, whatever its limit is.
func TestFullPagesEndTheirQuery(t *testing.T) {
	t.Parallel()
	l := new(largeRecords)
	s := &Store{stub: l}
	var page store.JournalPage
	q := store.JournalQuery{To: store.JournalAt(wire.MaxTime), Limit: 1000}
	_, err := s.queryJournal(t.Context(), nil, kindJournal, "", q, &page, takeRecord(&page))
	if most := store.JournalPageBytes >> 20; err != nil || len(page.Records) != most || !page.More || l.asked != most+1 {
		t.Errorf("%d records read for a page of %d, more: %t, %v; want %d for %d", l.asked, len(page.Records), page.More, err, most+1, most)
	}
}
