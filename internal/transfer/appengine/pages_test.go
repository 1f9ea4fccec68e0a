package appengine

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// A server answers queries of one kind with a shard a page.
type server struct {
	pb.UnimplementedDatastoreServer
	pages  int
	broken bool // pages have no cursors

	asked   []string // the cursors
	headers metadata.MD
}

func (s *server) RunQuery(ctx context.Context, req *pb.RunQueryRequest) (*pb.RunQueryResponse, error) {
	query := req.GetQuery()
	if query.GetKind()[0].GetName() != kindSimple {
		return &pb.RunQueryResponse{Batch: &pb.QueryResultBatch{MoreResults: pb.QueryResultBatch_NO_MORE_RESULTS}}, nil
	}
	s.headers, _ = metadata.FromIncomingContext(ctx)
	s.asked = append(s.asked, req.GetPartitionId().GetDatabaseId()+"/"+string(query.GetStartCursor()))
	batch := &pb.QueryResultBatch{
		EntityResults: []*pb.EntityResult{{Entity: &pb.Entity{
			Key:        &pb.Key{Path: []*pb.Key_PathElement{{Kind: kindSimple, IdType: &pb.Key_PathElement_Id{Id: 7}}}},
			Properties: map[string]*pb.Value{"count": {ValueType: &pb.Value_IntegerValue{IntegerValue: 5}}},
		}}},
		MoreResults: pb.QueryResultBatch_NO_MORE_RESULTS,
	}
	if len(s.asked) < s.pages {
		batch.MoreResults = pb.QueryResultBatch_NOT_FINISHED
		if !s.broken {
			batch.EndCursor = fmt.Append(nil, "after ", len(s.asked))
		}
	}
	return &pb.RunQueryResponse{Batch: batch}, nil
}

func (s *server) serve(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pb.RegisterDatastoreServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// Read follows the cursors of a named database to the end.
func TestPages(t *testing.T) {
	t.Parallel()
	s := &server{pages: 3}
	found, err := Read(t.Context(), Config{Project: "p", Database: "d", Emulator: s.serve(t), JavaNames: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Total{{Simple, "", 3, 15}}, found.Totals()); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"d/", "d/after 1", "d/after 2"}, s.asked); diff != "" {
		t.Errorf("cursors (-want +got):\n%s", diff)
	}
	for header, want := range map[string]string{
		"google-cloud-resource-prefix": "projects/p/databases/d",
		"x-goog-request-params":        "project_id=p&database_id=d",
	} {
		if got := strings.Join(s.headers[header], " "); got != want {
			t.Errorf("header %s is %q, want %q", header, got, want)
		}
	}
}

func TestPagesWithoutCursors(t *testing.T) {
	t.Parallel()
	s := &server{pages: 2, broken: true}
	_, err := Read(t.Context(), Config{Project: "p", Emulator: s.serve(t), JavaNames: []string{}})
	if err == nil || !strings.Contains(err.Error(), "no cursor") {
		t.Errorf("got %v, want an error about the cursor", err)
	}
}
