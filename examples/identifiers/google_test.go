package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// limitVariable is the number of identifiers that TestAgreesOnGoogle counts; 0 for all.
const limitVariable = "COUNTMILL_TEST_IDENTIFIERS"

// Totals are also exact with separate roles, on Google's emulators and memcached. An aggregator is
// killed again and again, and memcached is restarted.
func TestAgreesOnGoogle(t *testing.T) {
	longtest.Only(t, "builds countmill, and kills an aggregator")
	firestore := emulator.Firestore(t)
	t.Setenv("PUBSUB_EMULATOR_HOST", emulator.PubSub(t))
	t.Setenv("DATASTORE_EMULATOR_HOST", firestore)
	limit, batch := "50000", "500"
	if text := os.Getenv(limitVariable); text != "" {
		limit, batch = text, "5000"
	}
	project := emulator.Project()
	args := []string{
		"--limit", limit, "--batch", batch, "--kill", "5", "--aggregators", "2",
		"--binary", build(t), "--memcached", emulator.MemcachedPath(t), "--data", filepath.Join(t.TempDir(), "data"),
		"--bus", "pubsub://" + project + "/increments?subscription=aggregators", "--store", "datastore://" + project,
	}
	var out strings.Builder
	err := run(t.Context(), args, &out, t.Output())
	t.Logf("report:\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kills                       5\n", "cache restarts              1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no row %q", want)
		}
	}
	counters, err := counterKeys(t.Context(), firestore, project)
	if err != nil {
		t.Fatal(err)
	}
	if want := rowOf(out.String(), "names"); want != grouped(int64(len(counters))) {
		t.Errorf("the store has %d counters, %s were compared", len(counters), want)
	}
}

// rowOf returns the number in a row of the report.
func rowOf(report, label string) string {
	for line := range strings.Lines(report) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == label {
			return fields[1]
		}
	}
	return ""
}

// counterKeys lists the keys of all counters in the store without using countmill. Each sent name is
// among them, because its total was compared; their number shows that there are no others. It makes one
// query, because every query of the emulator reads all entities of the kind: 172,000 keys take 6
// seconds, and a page of 500 takes 2.
func counterKeys(ctx context.Context, host, project string) ([]string, error) {
	conn, err := grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	query := &pb.Query{
		Kind:       []*pb.KindExpression{{Name: "CountmillRecord"}},
		Projection: []*pb.Projection{{Property: &pb.PropertyReference{Name: "__key__"}}},
	}
	var counters []string
	for {
		resp, err := pb.NewDatastoreClient(conn).RunQuery(ctx, &pb.RunQueryRequest{
			ProjectId: project, QueryType: &pb.RunQueryRequest_Query{Query: query},
		})
		if err != nil {
			return nil, fmt.Errorf("list the keys of the counters: %w", err)
		}
		for _, e := range resp.GetBatch().GetEntityResults() {
			counters = append(counters, e.GetEntity().GetKey().GetPath()[0].GetName())
		}
		if resp.GetBatch().GetMoreResults() != pb.QueryResultBatch_NOT_FINISHED {
			return counters, nil
		}
		query.StartCursor = resp.GetBatch().GetEndCursor()
	}
}
