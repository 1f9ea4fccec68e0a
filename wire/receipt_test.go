package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

func TestReceiptText(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 7, 0, 0, 123_000, time.UTC)
	most := Receipt{Database: TagOf("a"), Time: at}
	for i := range MaxReceiptSpans {
		most.Spans = append(most.Spans, Span{Flush: FlushHash{byte(i)}, First: 1 << 30, Last: 1<<30 + 14})
	}
	for name, r := range map[string]Receipt{
		"nothing": {Time: at},
		"one":     {Database: TagOf("b"), Time: at, Spans: []Span{{Flush: FlushHash{1, 2, 3}, Single: true}}},
		"two":     {Time: at, Spans: []Span{{Flush: FlushHash{1}, First: 3, Last: 7}, {Flush: FlushHash{2}, Last: 900, Single: true}}},
		"most":    most,
	} {
		text := r.String()
		got, err := ParseReceipt(text)
		if diff := cmp.Diff(r, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if len(text) > maxReceipt || strings.ContainsAny(text, "+/=&?% ") {
			t.Errorf("%s has %d bytes: %.80s", name, len(text), text)
		}
		for i := range text { // a damaged or cut receipt is refused, and not looked for
			cut, flipped := text[:i], text[:i]+string("AB"[text[i]&1^1])+text[i+1:]
			for _, bad := range []string{cut, flipped} {
				if bad == text {
					continue
				}
				if got, err := ParseReceipt(bad); !errors.Is(err, countmill.ErrInvalid) {
					t.Fatalf("%s: %q is taken for %+v, %v", name, bad, got, err)
				}
			}
		}
	}
	if text := (Receipt{}).String(); text != "" {
		t.Errorf("no receipt is %q", text)
	}
}

func TestParseReceiptRefuses(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	tooMany := Receipt{Time: at, Spans: []Span{{Last: 500}, {Last: 500}}}
	spans := Receipt{Time: at, Spans: make([]Span, MaxReceiptSpans+1)}
	for _, text := range []string{"", "x", "!!!!", tooMany.String(), spans.String(), strings.Repeat("A", maxReceipt+1),
		"message:", "message:0:t:1", "message:x:t:1", "message:1795417200:t", "message:1795417200::1", "message:1795417200:t:"} {
		var field *countmill.FieldError
		if got, err := ParseReceipt(text); !errors.As(err, &field) || field.Field != "after" {
			t.Errorf("%.40q is taken for %+v, %v", text, got, err)
		}
	}
}

// A message of another program has the completion marker that its aggregator computes.
func TestForeignReceipt(t *testing.T) {
	t.Parallel()
	const topic = "projects/p/topics/t"
	got, err := ParseReceipt("message:1795417200:" + topic + ":12:3")
	want := Receipt{Time: time.Unix(1795417200, 0).UTC(), Spans: []Span{{Flush: ForeignHash(topic, "12:3")}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Stored markers depend on these ids: they never change.
func TestCompletionsAreFrozen(t *testing.T) {
	t.Parallel()
	flush := FlushID{1}.Hash()
	for want, got := range map[string]PartID{
		"6d7a80075a3429998e5a865a949d97dc": flush.Completion(0),
		"1d7a80075a3429998e5a865a949d97dc": flush.Single(0),
		"608f940a8c607259b02cc2038785af09": flush.Completion(7),
		"6a286a3aa80e77c9f3ec9c71e06f95c0": ForeignHash("t", "1").Completion(0),
	} {
		if got.String() != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if flush.Single(3).Completion() != flush.Completion(3) || flush.Single(3).Class() != AnonymousClass || flush.Completion(3).Class() != CompletionClass {
		t.Errorf("a single part %s and its completion marker %s do not belong together", flush.Single(3), flush.Completion(3))
	}
	if TagOf("") != (DatabaseTag{}) || TagOf("a") == TagOf("b") {
		t.Errorf("tags: %x, %x, %x", TagOf(""), TagOf("a"), TagOf("b"))
	}
}
