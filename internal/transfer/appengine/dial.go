//go:build !nogoogle

package appengine

import (
	"context"
	"net/url"
	"strings"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/api/option/internaloption"
	gtransport "google.golang.org/api/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// dialOptions are options of the connection.
type dialOptions = []grpc.DialOption

// repeats are the retries of Google's client. Queries can be repeated: they change nothing.
const repeats = `{"methodConfig": [{
	"name": [{"service": "google.datastore.v1.Datastore", "method": "RunQuery"}],
	"timeout": "60s",
	"waitForReady": true,
	"retryPolicy": {
		"maxAttempts": 5,
		"initialBackoff": "0.1s",
		"maxBackoff": "60s",
		"backoffMultiplier": 1.3,
		"retryableStatusCodes": ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED"]
	}
}]}`

// dial makes the connection. It does not use Google's client of Datastore, which would add 8 packages and 0.7 MB to the
// program: docs/evidence/benchmarks.md.
func dial(ctx context.Context, cfg Config) (*grpc.ClientConn, error) {
	options := append([]grpc.DialOption{
		grpc.WithDefaultServiceConfig(repeats),
		grpc.WithUserAgent("countmill"),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: 20 * time.Second, PermitWithoutStream: true}),
		grpc.WithChainUnaryInterceptor(routing(cfg.Project, cfg.Database)),
	}, cfg.options...)
	if cfg.Emulator != "" {
		target := "passthrough:///" + strings.TrimPrefix(cfg.Emulator, "http://")
		return grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	}
	google := []option.ClientOption{
		internaloption.WithDefaultEndpointTemplate("datastore.UNIVERSE_DOMAIN:443"),
		internaloption.WithDefaultUniverseDomain("googleapis.com"),
		internaloption.WithDefaultMTLSEndpoint("datastore.mtls.googleapis.com:443"),
		internaloption.EnableNewAuthLibrary(),
		option.WithScopes("https://www.googleapis.com/auth/datastore"),
		option.WithTelemetryDisabled(),
	}
	for _, o := range options {
		google = append(google, option.WithGRPCDialOption(o))
	}
	return gtransport.Dial(ctx, google...)
}

// routing adds the headers by which Google finds a database. Without the second one a named database is
// not found.
func routing(project, database string) grpc.UnaryClientInterceptor {
	resource, params := "projects/"+url.QueryEscape(project), "project_id="+url.QueryEscape(project)
	if database != "" {
		resource += "/databases/" + url.QueryEscape(database)
		params += "&database_id=" + url.QueryEscape(database)
	}
	headers := []string{"google-cloud-resource-prefix", resource, "x-goog-request-params", params}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(metadata.AppendToOutgoingContext(ctx, headers...), method, req, reply, cc, opts...)
	}
}
