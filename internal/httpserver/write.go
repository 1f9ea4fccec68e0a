package httpserver

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Header values that every answer shares; nothing may change them in place.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
)

// FormatTime is RFC 3339 in UTC with microseconds, always six digits.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// An Appender writes itself as JSON, for answers that are given often.
type Appender interface {
	// AppendJSON appends one JSON value to b.
	AppendJSON(b []byte) []byte
}

const (
	// maxBuffer is the largest buffer that is kept for the next answer. A larger answer is large.
	maxBuffer = 16 << 10

	// leastRead is how fast a client must read a large answer, in bytes a second, after
	// readGrace. A slower client loses its connection: unread answers hold memory that others
	// need.
	leastRead = 256 << 10
	readGrace = 3 * time.Second
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// WriteJSON answers with v, which package json encodes unless it is an Appender. An
// answer must not be stored by anyone in between, as totals age and problems pass. Before an answer of over
// 16 KiB it calls large, and after it done. If large refuses, WriteJSON writes nothing and returns the error.
func WriteJSON(w http.ResponseWriter, status int, v any, large func(size int) (done func(), err error)) error {
	return write(w, status, typeJSON, v, large)
}

func write(w http.ResponseWriter, status int, contentType []string, v any, large func(size int) (done func(), err error)) error {
	body := buffers.Get().(*bytes.Buffer)
	body.Reset()
	encode(body, v)
	if body.Len() > maxBuffer {
		HurryReader(w, body.Len())
		if large != nil {
			done, err := large(body.Len())
			if err != nil {
				return err
			}
			defer done()
		}
	}
	header := w.Header()
	header["Content-Type"] = contentType
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"] = noSniff
	header["Content-Length"] = []string{strconv.Itoa(body.Len())}
	w.WriteHeader(status)
	w.Write(body.Bytes()) // an error means that the client is gone
	if body.Cap() <= maxBuffer {
		buffers.Put(body)
	}
	return nil
}

// HurryReader ends the connection of a client that does not read a large answer soon.
func HurryReader(w http.ResponseWriter, size int) {
	_ = ExtendWrite(w, readGrace+time.Duration(size)*time.Second/leastRead) // tests write without a connection
}

// Formatted is an answer that is encoded in a way of its own.
type Formatted struct {
	Value   any
	Options json.Options
}

// answers are how answers are encoded: times are those of FormatTime, and a text of a client in a JSON value stays as it is.
var answers = json.JoinOptions(
	json.Deterministic(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true), jsontext.EscapeForJS(true),
	json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, t time.Time) error { return e.WriteToken(jsontext.String(FormatTime(t))) })),
)

// encode ends with a newline, for people who read answers in a terminal.
func encode(body *bytes.Buffer, v any) {
	body.Write(AppendJSON(body.AvailableBuffer(), v))
}

// AppendJSON appends an answer and a newline.
func AppendJSON(b []byte, v any) []byte {
	if a, ok := v.(Appender); ok {
		return append(a.AppendJSON(b), '\n')
	}
	options := answers
	if f, ok := v.(Formatted); ok {
		v, options = f.Value, json.JoinOptions(answers, f.Options)
	}
	text := bytes.NewBuffer(b)
	if err := json.MarshalWrite(text, v, options); err != nil {
		panic(err) // a value that can never be JSON; Recover logs it and answers
	}
	return append(text.Bytes(), '\n')
}
