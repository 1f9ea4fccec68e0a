package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/wire"
)

// traces opens an exporter over OTLP if OpenTelemetry's standard variables ask for one.
func traces(ctx context.Context, log *slog.Logger) (backend.Traces, error) {
	wanted, err := tracesWanted()
	if err != nil || !wanted {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx) // it makes no call; the SDK reads all other variables
	if err != nil {
		return nil, err
	}
	process, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "countmill")), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, err
	}
	if err != nil { // of the variables one entry is wrong, and the others hold
		log.LogAttrs(ctx, slog.LevelWarn, "OTEL_RESOURCE_ATTRIBUTES is not all understood", slog.Any("err", err))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.LogAttrs(context.Background(), slog.LevelWarn, "spans were not sent", slog.Any("err", err))
	}))
	// Not otel's global provider: Google's clients would add a span for each of their calls.
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(process))
	return &exporting{provider, provider.Tracer("github.com/countmill/countmill")}, nil
}

// The variables that are checked. Some decide whether spans are recorded; of the others the SDK misreads wrong values in silence.
const (
	varDisabled       = "OTEL_SDK_DISABLED"
	varExporter       = "OTEL_TRACES_EXPORTER"
	varEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	varTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	varProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	varTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	varSampler        = "OTEL_TRACES_SAMPLER"
	varSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
)

// tracesWanted reports whether the variables name a collector. The SDK would replace a value that it does not
// know by a default: another endpoint, or all requests. Such a value is an error here.
func tracesWanted() (bool, error) {
	exporter := os.Getenv(varExporter)
	named := os.Getenv(varEndpoint) != "" || os.Getenv(varTracesEndpoint) != ""
	switch {
	case strings.EqualFold(os.Getenv(varDisabled), "true"), exporter == "none", exporter == "" && !named:
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("%s must be otlp or none, got %q", varExporter, exporter)
	}
	return true, errors.Join(checkEndpoint(varEndpoint), checkEndpoint(varTracesEndpoint), checkProtocol(varProtocol), checkProtocol(varTracesProtocol), checkSampler())
}

func checkEndpoint(name string) error {
	value := os.Getenv(name)
	if value == "" {
		return nil
	}
	if u, err := url.Parse(value); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s must be http://HOST:PORT or https://HOST:PORT", name) // not the value: it may have a password
	}
	return nil
}

func checkProtocol(name string) error {
	if value := os.Getenv(name); value != "" && value != "http/protobuf" {
		return fmt.Errorf("%s: this program sends http/protobuf alone, mostly to port 4318; got %q", name, value)
	}
	return nil
}

var samplers = []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}

func checkSampler() error {
	name := os.Getenv(varSampler)
	if name == "" {
		return nil
	}
	if !slices.Contains(samplers, strings.ToLower(strings.TrimSpace(name))) {
		return fmt.Errorf("%s must be one of %s, got %q", varSampler, strings.Join(samplers, ", "), name)
	}
	arg := os.Getenv(varSamplerArg)
	if !strings.HasSuffix(strings.ToLower(strings.TrimSpace(name)), "traceidratio") || arg == "" {
		return nil
	}
	if ratio, err := strconv.ParseFloat(strings.TrimSpace(arg), 64); err != nil || !(ratio >= 0 && ratio <= 1) {
		return fmt.Errorf("%s must be a number from 0 to 1, got %q", varSamplerArg, arg)
	}
	return nil
}

// exporting records steps as spans of OpenTelemetry.
type exporting struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Start asks the sampler, which goes by the parent and by the trace's id.
func (e *exporting) Start(s wire.Step) wire.Recording {
	ctx := context.Background()
	if s.Parent != (wire.Trace{}) {
		ctx = trace.ContextWithSpanContext(ctx, spanContext(s.Parent, s.Kind != wire.SendStep))
	}
	links := make([]trace.Link, len(s.Links))
	for i, link := range s.Links {
		links[i].SpanContext = spanContext(link, s.Kind != wire.SendStep)
	}
	_, span := e.tracer.Start(ctx, s.Name, trace.WithSpanKind(kinds[s.Kind]), trace.WithAttributes(attributesOf(s)...), trace.WithLinks(links...))
	return recording{span}
}

// Close sends the spans that are left.
func (e *exporting) Close(ctx context.Context) error { return e.provider.Shutdown(ctx) }

var kinds = map[wire.StepKind]trace.SpanKind{
	wire.RequestStep: trace.SpanKindServer, wire.SendStep: trace.SpanKindProducer, wire.FoldStep: trace.SpanKindConsumer,
}

// attributesOf follows OpenTelemetry's conventions. No attribute has a name of a counter, a token or an address.
func attributesOf(s wire.Step) []attribute.KeyValue {
	switch s.Kind {
	case wire.RequestStep:
		method, route, _ := strings.Cut(s.Name, " ")
		return []attribute.KeyValue{attribute.String("http.request.method", method), attribute.String("http.route", route)}
	case wire.SendStep:
		return []attribute.KeyValue{attribute.String("messaging.operation.type", "send")}
	}
	return []attribute.KeyValue{attribute.String("messaging.operation.type", "process")}
}

// spanContext is a span of another step. The sender of a message or a request may be in another process.
func spanContext(t wire.Trace, remote bool) trace.SpanContext {
	var flags trace.TraceFlags
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: t.ID, SpanID: t.Span, TraceFlags: flags.WithSampled(t.Sampled), Remote: remote})
}

// recording is a span that has begun.
type recording struct{ span trace.Span }

func (r recording) Trace() wire.Trace {
	c := r.span.SpanContext()
	return wire.Trace{ID: c.TraceID(), Span: c.SpanID(), Sampled: c.IsSampled()}
}

func (r recording) End(failure string, figures ...wire.Figure) {
	for _, f := range figures {
		r.span.SetAttributes(attribute.Int64(f.Name, f.Value))
	}
	if failure != "" {
		r.span.SetAttributes(attribute.String("error.type", failure))
		r.span.SetStatus(codes.Error, "")
	}
	r.span.End()
}
