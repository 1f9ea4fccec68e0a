package datastore

import (
	"context"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

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
