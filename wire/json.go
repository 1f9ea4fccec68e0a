package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill"
)

// A Form is the layout of increments in a JSON text.
type Form uint8

const (
	// JSON is one object, or an array of at least one object.
	JSON Form = iota
	// NDJSON is one object per line, at least one. Lines end with \n or \r\n; the last line may
	// have no end. Blank lines are allowed only at the end: elsewhere they suggest that something
	// was lost. So line n has increment n-1.
	NDJSON
)

// The limits that errors name, for each value of the schema.
const (
	wantBody    = "one object or one array of objects"
	wantLine    = "one object per line"
	wantSome    = "at least one increment"
	wantObject  = "an object"
	wantFields  = "counter, delta, id, time"
	wantCounter = "a string of 1 to 500 bytes of valid UTF-8"
	wantDelta   = "an integer literal from -9007199254740991 to 9007199254740991, not 0"
	wantID      = "a string of 1 to 128 bytes of valid UTF-8"
	wantTime    = "a string as in RFC 3339, such as 2006-01-02T15:04:05Z"
)

// minIncrement is the length of the shortest increment in JSON with its separator:
// {"counter":"a"} and a comma or the end of a line.
const minIncrement = 16

// maxPlainDocument is the length up to which document tries the fast path, which copies the text.
const maxPlainDocument = countmill.MaxCounterName + 100

// IsJSON distinguishes JSON from a batch, which begins with the tag of its version, 8.
func IsJSON(payload []byte) bool {
	payload = bytes.TrimLeft(payload, " \t\r\n")
	return len(payload) > 0 && (payload[0] == '{' || payload[0] == '[')
}

// DecodeJSON reads increments in the JSON form of requests and of messages from other programs:
// objects {"counter", "delta" (1 when absent), "id"?, "time"?}. It also checks all limits of an
// increment. One bad element refuses the whole text.
//
// It is strict where JSON readers differ, because text that two readers understand in two ways
// cannot be counted once. It refuses unknown, repeated or differently-cased fields, lone
// surrogates, invalid UTF-8, null, text after the end, and deltas that are not integer literals
// (1.0, 1e3, "1").
//
// now and window bound the times of increments. now is the time of the request, or the publish
// time of the message, so that a redelivery is read as the first delivery was.
//
// Every error is a *countmill.FieldError, with Index for an array and Line for NDJSON. The result
// does not keep body; its names may share one copy of it. It needs at most five times the memory
// of body.
func DecodeJSON(body []byte, form Form, now time.Time, window time.Duration) ([]countmill.Increment, error) {
	r := jsonReaders.Get().(*jsonReader)
	defer r.release()
	r.now, r.window = now, window
	var incs []countmill.Increment
	var ferr *countmill.FieldError
	if form == NDJSON {
		incs, ferr = r.lines(body)
	} else {
		incs, ferr = r.document(body)
	}
	if ferr != nil {
		return nil, ferr
	}
	return incs, nil
}

var (
	jsonReaders = sync.Pool{New: func() any { return new(jsonReader) }}

	// object refuses repeated names itself, and can name them.
	jsonOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true)}
)

type jsonReader struct {
	dec    jsontext.Decoder
	src    bytes.Buffer
	now    time.Time
	window time.Duration
}

func (r *jsonReader) reset(text []byte) {
	r.src = *bytes.NewBuffer(text) // the decoder reads a Buffer in place
	r.dec.Reset(&r.src, jsonOptions...)
}

// release returns the reader to the pool, without the caller's bytes.
func (r *jsonReader) release() {
	r.reset(nil)
	jsonReaders.Put(r)
}

// document reads a whole text of the Form JSON.
func (r *jsonReader) document(body []byte) ([]countmill.Increment, *countmill.FieldError) {
	if len(body) <= maxPlainDocument {
		var inc countmill.Increment
		if rest, ok := plainObject(string(body), &inc); ok && plainEnd(rest) {
			return []countmill.Increment{inc}, nil
		}
	}
	r.reset(body)
	var incs []countmill.Increment
	var ferr *countmill.FieldError
	switch kind := r.dec.PeekKind(); kind {
	case '{':
		incs = make([]countmill.Increment, 1)
		ferr = r.object(&incs[0])
	case '[':
		incs, ferr = r.array(bytes.Count(body, []byte("{")), len(body))
	default:
		return nil, r.unexpected("body", wantBody, kind)
	}
	if ferr != nil {
		return nil, ferr
	}
	return incs, r.end("one object or one array: several objects belong in an array, or are application/x-ndjson")
}

// array reads an array of at most n objects in size bytes.
func (r *jsonReader) array(n, size int) ([]countmill.Increment, *countmill.FieldError) {
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, syntaxError("body", wantBody, err)
	}
	incs := make([]countmill.Increment, 0, min(n, size/minIncrement+1))
	for r.dec.PeekKind() != ']' {
		var inc countmill.Increment
		if ferr := r.object(&inc); ferr != nil {
			i := len(incs)
			ferr.Index = &i
			return nil, ferr
		}
		incs = append(incs, inc)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, syntaxError("body", wantBody, err)
	}
	if len(incs) == 0 {
		return nil, &countmill.FieldError{Field: "body", Problem: "is an empty array", Limit: wantSome}
	}
	return incs, nil
}

// lines reads a whole text of the Form NDJSON.
func (r *jsonReader) lines(body []byte) ([]countmill.Increment, *countmill.FieldError) {
	body = bytes.TrimRight(body, " \t\r\n")
	if len(body) == 0 {
		return nil, &countmill.FieldError{Field: "body", Problem: "is empty", Limit: wantSome}
	}
	n := bytes.Count(body, []byte("\n")) + 1
	incs := make([]countmill.Increment, 0, min(n, len(body)/minIncrement+1))
	text := string(body) // one copy for all plain names
	for at, more := 0, true; more; {
		line, _, found := strings.Cut(text[at:], "\n")
		from := at
		at, more = at+len(line)+1, found
		incs = append(incs, countmill.Increment{})
		inc := &incs[len(incs)-1]
		if rest, ok := plainObject(line, inc); ok && plainEnd(rest) {
			continue
		}
		*inc = countmill.Increment{}
		if ferr := r.line(body[from:from+len(line)], inc); ferr != nil {
			number := len(incs)
			ferr.Line = &number
			return nil, ferr
		}
	}
	return incs, nil
}

func (r *jsonReader) line(text []byte, inc *countmill.Increment) *countmill.FieldError {
	if len(bytes.TrimRight(text, " \t\r")) == 0 {
		return &countmill.FieldError{Field: "body", Problem: "is blank", Limit: wantLine + ", blank lines only at the end"}
	}
	r.reset(text)
	if ferr := r.object(inc); ferr != nil {
		return ferr
	}
	return r.end(wantLine)
}

// end makes sure that nothing follows the text read so far.
func (r *jsonReader) end(want string) *countmill.FieldError {
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &countmill.FieldError{Field: "body", Problem: "has text after its end", Limit: want}
	}
	return nil
}
