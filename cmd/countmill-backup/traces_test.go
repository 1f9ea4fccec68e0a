package main

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// A fakeCollector takes spans over OTLP, as protobuf over HTTP.
type fakeCollector struct {
	t       *testing.T
	mu      sync.Mutex
	spans   []*otlp.Span
	text    strings.Builder // of everything that came
	refuses bool
}

// collect starts a collector, and sets the variables that name it.
func collect(t *testing.T) *fakeCollector {
	t.Helper()
	c := &fakeCollector{t: t}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	t.Setenv(varEndpoint, s.URL)
	return c
}

func (c *fakeCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.t.Errorf("the collector got %s %s of type %q: %v", r.Method, r.URL.Path, r.Header.Get("Content-Type"), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses {
		w.WriteHeader(http.StatusBadRequest) // which the exporter does not repeat
		return
	}
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	c.text.WriteString(request.String())
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// named are the spans of a name.
func (c *fakeCollector) named(name string) (of []*otlp.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.GetName() == name {
			of = append(of, s)
		}
	}
	return of
}

// only is the one span of a name.
func (c *fakeCollector) only(t *testing.T, name string) *otlp.Span {
	t.Helper()
	of := c.named(name)
	if len(of) != 1 {
		t.Fatalf("%d spans %q, want 1, in:\n%s", len(of), name, c.text.String())
	}
	return of[0]
}

// childOf reports whether a span is a child of another.
func childOf(s, parent *otlp.Span) bool {
	return string(s.GetParentSpanId()) == string(parent.GetSpanId()) && string(s.GetTraceId()) == string(parent.GetTraceId())
}

// up runs the whole program until stop, which returns its exit code.
func up(t *testing.T, args ...string) (server string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &lines{first: make(chan string, 1)}
	ended := make(chan int, 1)
	args = append([]string{"up", "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data")}, args...)
	go func() { ended <- run(ctx, out, args...) }()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	select {
	case line := <-out.first:
		_, server, _ = strings.Cut(line, "listens on ")
		server, _, _ = strings.Cut(server, " ")
	case code := <-ended:
		t.Fatalf("up ended with %d", code)
	case <-time.After(3 * time.Minute):
		t.Fatal("up does not start")
	}
	return server, stop
}

// increment counts one of a counter, with a token that the server does not need.
func increment(t *testing.T, server, counter, traceparent string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/v1/increments", strings.NewReader(`{"counter":"`+counter+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer secret-token")
	if traceparent != "" {
		req.Header.Set("traceparent", traceparent)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusAccepted {
		t.Fatalf("got %d %s", res.StatusCode, text)
	}
}

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// One request is one trace at the collector: the request, its message, the commit.
func TestTheCollectorSeesTheWayOfARequest(t *testing.T) {
	c := collect(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	server, stop := up(t)
	increment(t, server, "private:name", caller)
	if code := stop(); code != 0 {
		t.Errorf("up: exit %d", code)
	}
	request, send, fold := c.only(t, "POST /v1/increments"), c.only(t, "send"), c.only(t, "fold")
	if hex.EncodeToString(request.GetTraceId()) != caller[3:35] || hex.EncodeToString(request.GetParentSpanId()) != caller[36:52] {
		t.Errorf("the request is no child of its caller: %v", request)
	}
	if !childOf(send, request) || !childOf(fold, send) {
		t.Errorf("the steps are not joined:\n%v\n%v\n%v", request, send, fold)
	}
	if request.GetKind() != otlp.Span_SPAN_KIND_SERVER || send.GetKind() != otlp.Span_SPAN_KIND_PRODUCER || fold.GetKind() != otlp.Span_SPAN_KIND_CONSUMER {
		t.Errorf("kinds %v, %v, %v", request.GetKind(), send.GetKind(), fold.GetKind())
	}
	text := c.text.String()
	for _, want := range []string{`"service.name"`, `"countmill"`, `"deployment.environment.name"`, `"http.response.status_code"`, `"countmill.parts"`} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing has %s in:\n%s", want, text)
		}
	}
	for _, never := range []string{"private", "secret-token", "127.0.0.1"} {
		if strings.Contains(text, never) {
			t.Errorf("the collector got %q in:\n%s", never, text)
		}
	}
	if len(c.spans) != 3 {
		t.Errorf("%d spans, want 3:\n%s", len(c.spans), text)
	}
}

// Two requests in one batch of another process: the message is a child of one and has a link to the other.
func TestTheCollectorSeesWhereTwoRequestsBecomeOneMessage(t *testing.T) {
	c := collect(t)
	server, stop := up(t)
	own, err := traces(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	bus, err := httpbus.Open(server)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	p, err := publisher.New(bus, publisher.Config{Linger: 3 * time.Second, Tracer: own})
	if err != nil {
		t.Fatal(err)
	}
	other := wire.ParseTrace(strings.Replace(caller, "0af7", "0bf7", 1))
	publishBoth(t, p, wire.ParseTrace(caller), other)
	if err := own.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if code := stop(); code != 0 {
		t.Errorf("up: exit %d", code)
	}
	send, request, fold := c.named("send"), c.only(t, "POST /v1/batches"), c.only(t, "fold")
	// up sends the batch on without a span of its own, because the request is that span.
	if len(send) != 1 || len(send[0].GetLinks()) != 1 {
		t.Fatalf("got %v, want one message with one link", send)
	}
	traceIDs := hex.EncodeToString(send[0].GetTraceId()) + " " + hex.EncodeToString(send[0].GetLinks()[0].GetTraceId())
	if first, second := caller[3:35], hex.EncodeToString(other.ID[:]); traceIDs != first+" "+second && traceIDs != second+" "+first {
		t.Errorf("the message is of the traces %s, want %s and %s", traceIDs, first, second)
	}
	if !childOf(request, send[0]) || !childOf(fold, request) {
		t.Errorf("the steps are not joined:\n%v\n%v\n%v", send, request, fold)
	}
}

// publishBoth publishes an increment for each of two spans in one batch.
func publishBoth(t *testing.T, p *publisher.Publisher, spans ...wire.Trace) {
	t.Helper()
	answers := make(chan error, len(spans))
	for _, span := range spans {
		go func() {
			_, err := p.Publish(wire.WithTrace(t.Context(), span), countmill.Increment{Counter: "a", Delta: 1})
			answers <- err
		}()
	}
	for range spans {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The sampler decides at the request, and everything behind it follows.
func TestWhatIsNotSampledSendsNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		sampler, arg, traceparent string
		want                      int
	}{
		"a caller that does not sample":    {"", "", strings.TrimSuffix(caller, "1") + "0", 0},
		"always_off":                       {"always_off", "", caller, 0},
		"parentbased_always_off":           {"parentbased_always_off", "", "", 0},
		"a ratio of 0":                     {"parentbased_traceidratio", "0", "", 0},
		"a ratio of 0 and a caller's 1":    {"parentbased_traceidratio", "0", caller, 3},
		"a ratio of 0 that goes by no one": {"traceidratio", "0", caller, 0},
		"a ratio of 1":                     {"traceidratio", "1", "", 3},
		"a malformed header":               {"", "", "00-zz", 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := collect(t)
			t.Setenv(varSampler, tt.sampler)
			t.Setenv(varSamplerArg, tt.arg)
			if tt.sampler == "" {
				os.Unsetenv(varSampler)
			}
			server, stop := up(t)
			increment(t, server, "a", tt.traceparent)
			if code := stop(); code != 0 {
				t.Errorf("up: exit %d", code)
			}
			if len(c.spans) != tt.want {
				t.Errorf("%d spans, want %d:\n%s", len(c.spans), tt.want, c.text.String())
			}
		})
	}
}

// A collector that refuses costs no increment and no exit code.
func TestARefusedExportCostsNothing(t *testing.T) {
	c := collect(t)
	c.refuses = true
	server, stop := up(t)
	increment(t, server, "a", caller)
	if code := stop(); code != 0 {
		t.Errorf("up: exit %d", code)
	}
}

func TestVariables(t *testing.T) {
	for name, tt := range map[string]struct {
		set  []string
		open bool
		err  string
	}{
		"none":                     {},
		"an endpoint":              {set: []string{varEndpoint, "http://localhost:4318"}, open: true},
		"an endpoint of traces":    {set: []string{varTracesEndpoint, "https://localhost/v1/traces"}, open: true},
		"an exporter":              {set: []string{varExporter, "otlp"}, open: true},
		"exporter none":            {set: []string{varEndpoint, "http://localhost:4318", varExporter, "none"}},
		"disabled":                 {set: []string{varEndpoint, "http://localhost:4318", varDisabled, "true"}},
		"another exporter":         {set: []string{varExporter, "zipkin"}, err: "OTEL_TRACES_EXPORTER must be otlp or none"},
		"an endpoint without http": {set: []string{varEndpoint, "localhost:4318"}, err: "OTEL_EXPORTER_OTLP_ENDPOINT must be http://HOST:PORT"},
		"gRPC":                     {set: []string{varEndpoint, "http://localhost:4317", varProtocol, "grpc"}, err: "http/protobuf alone"},
		"an unknown sampler":       {set: []string{varExporter, "otlp", varSampler, "some"}, err: "OTEL_TRACES_SAMPLER must be one of always_on"},
		"a ratio in percent":       {set: []string{varExporter, "otlp", varSampler, "traceidratio", varSamplerArg, "10"}, err: "OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1"},
		"a ratio that is none":     {set: []string{varExporter, "otlp", varSampler, "traceidratio", varSamplerArg, "NaN"}, err: "must be a number from 0 to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{varDisabled, varExporter, varEndpoint, varTracesEndpoint, varProtocol, varTracesProtocol, varSampler, varSamplerArg} {
				t.Setenv(name, "")
				os.Unsetenv(name) // until the test ends
			}
			for i := 0; i < len(tt.set); i += 2 {
				t.Setenv(tt.set[i], tt.set[i+1])
			}
			got, err := traces(t.Context(), slog.New(slog.DiscardHandler))
			if got != nil {
				defer closeTraces(t, got)
			}
			if (got != nil) != tt.open || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, %v, want an exporter: %t, error %q", got, err, tt.open, tt.err)
			}
		})
	}
}

func closeTraces(t *testing.T, of backend.Traces) {
	t.Helper()
	if err := of.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A wrong variable ends the command at its start.
func TestAWrongVariableEndsTheCommand(t *testing.T) {
	t.Setenv(varEndpoint, "somewhere")
	if code := run(t.Context(), os.Stderr, "up", "--listen", "127.0.0.1:0", "--data", t.TempDir()); code != 2 {
		t.Errorf("exit %d, want 2", code)
	}
}
