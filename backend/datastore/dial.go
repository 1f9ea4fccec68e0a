package datastore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"google.golang.org/api/option"
	"google.golang.org/api/option/internaloption"
	gtransport "google.golang.org/api/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

const (
	scope = "https://www.googleapis.com/auth/datastore"

	// detecting bounds the search for credentials. Outside Google Cloud it asks the network for a
	// metadata server that does not exist.
	detecting = 4 * time.Second

	// maxAnswer is the most bytes of an answer. A dead letter of 10 MB in chunks of 900 KiB must fit.
	maxAnswer = 64 << 20
)

// detectFunc finds the machine's credentials.
type detectFunc func(*credentials.DetectOptions) (*auth.Credentials, error)

// dial makes the connection. It does not wait for the server.
func dial(ctx context.Context, cfg Config, detect detectFunc) (*grpc.ClientConn, error) {
	options := dialOptions(cfg)
	if cfg.Emulator != "" {
		target := cfg.Emulator
		if !strings.Contains(target, "://") {
			target = "passthrough:///" + target
		}
		return grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	}
	creds, err := findCredentials(ctx, detect)
	if err != nil {
		return nil, err
	}
	google := []option.ClientOption{
		internaloption.WithDefaultEndpointTemplate("datastore.UNIVERSE_DOMAIN:443"),
		internaloption.WithDefaultUniverseDomain("googleapis.com"),
		internaloption.WithDefaultMTLSEndpoint("datastore.mtls.googleapis.com:443"),
		internaloption.EnableNewAuthLibrary(),
		option.WithScopes(scope),
		option.WithAuthCredentials(creds),
		option.WithTelemetryDisabled(),
	}
	if cfg.Endpoint != "" {
		google = append(google, option.WithEndpoint(cfg.Endpoint))
	}
	for _, o := range options {
		google = append(google, option.WithGRPCDialOption(o))
	}
	return gtransport.Dial(ctx, google...)
}

// dialOptions returns the options of every connection. gRPC must not repeat a call by itself: if an
// answer was lost, it would send the increment again. It still repeats calls that certainly never
// reached the server.
func dialOptions(cfg Config) []grpc.DialOption {
	return append([]grpc.DialOption{
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithUserAgent("countmill"),
		// As in Google's client: this ends dead connections.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: 20 * time.Second, PermitWithoutStream: true}),
		// By default gRPC's pause between two connection attempts grows to 2 minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithChainUnaryInterceptor(routing(cfg.Project, cfg.Database)),
	}, cfg.DialOptions...)
}

// routing adds the headers by which Google finds a database. Without the second one a named database is
// not found.
func routing(project, database string) grpc.UnaryClientInterceptor {
	resource, params := "projects/"+url.QueryEscape(project), "project_id="+url.QueryEscape(project)
	if database != "" {
		resource += "/databases/" + url.QueryEscape(database)
		params += "&database_id=" + url.QueryEscape(database)
	}
	headers := []string{
		"google-cloud-resource-prefix", resource,
		"x-goog-request-params", params,
		"x-goog-api-client", "gl-go/" + strings.TrimPrefix(runtime.Version(), "go") + " grpc/" + grpc.Version,
	}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(metadata.AppendToOutgoingContext(ctx, headers...), method, req, reply, cc, opts...)
	}
}

// findCredentials gives up after detecting, because the search takes no context.
func findCredentials(ctx context.Context, detect detectFunc) (*auth.Credentials, error) {
	type found struct {
		creds *auth.Credentials
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, detecting)
	defer cancel()
	answer := make(chan found, 1)
	go func() {
		creds, err := detect(&credentials.DetectOptions{Scopes: []string{scope}})
		answer <- found{creds, err}
	}()
	var err error
	select {
	case f := <-answer:
		if f.err == nil {
			return f.creds, nil
		}
		err = f.err
	case <-ctx.Done():
		err = errors.New("the search for them took too long")
	}
	return nil, fmt.Errorf("no application default credentials: run `gcloud auth application-default login`, name a key file in "+
		"GOOGLE_APPLICATION_CREDENTIALS, or set DATASTORE_EMULATOR_HOST for an emulator: %w", err)
}
