package manage

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
)

// maxBody is the most bytes of a request's body: a name of 500 bytes may be escaped.
const maxBody = 64 << 10

const (
	wantGrow   = `{"shards": N}`
	wantReset  = `{"counter": "...", "id": "..."}, the id only if wanted`
	wantShards = "1 to 999"
)

// read reads an object into v, strictly: no unknown, repeated or differently-cased fields, no
// lone surrogates, no null, nothing after the end.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, v any, want string) error {
	if _, err := api.ContentType(r, "application/json"); err != nil {
		return err
	}
	body, err := api.BodyReader{Max: maxBody, Timeout: h.cfg.BodyTimeout}.Read(w, r, nil)
	if err != nil {
		return err
	}
	if jsontext.Value(body).Kind() == 'n' {
		return &countmill.FieldError{Field: "body", Problem: "is not an object", Limit: want}
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return bodyError(err, want)
	}
	return nil
}

// bodyError says what is wrong in the words of the API, without those of Go.
func bodyError(err error, want string) error {
	wrong := func(field, problem string) error {
		return &countmill.FieldError{Field: field, Problem: problem, Limit: want}
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		field := semantic.JSONPointer.LastToken()
		switch {
		case errors.Is(err, json.ErrUnknownName):
			return wrong(field, "is not a field")
		case errors.Is(err, errNotText):
			return wrong(field, "is not a string")
		case errors.Is(err, errNotInteger):
			return &countmill.FieldError{Field: field, Problem: "is not an integer", Limit: wantShards}
		}
		return wrong("body", "is not an object")
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return wrong("body", "has a field twice")
	}
	problem := "is not JSON"
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		problem += fmt.Sprintf(" at byte %d: %v", syntactic.ByteOffset, syntactic.Err)
	}
	return wrong("body", problem)
}

var (
	errNotText    = errors.New("not a string")
	errNotInteger = errors.New("not an integer")
)

// text is a JSON string and nothing else. It is no pointer: null would pass for a field that
// is not there.
type text struct {
	value string
	given bool
}

// UnmarshalJSONFrom takes a string.
func (t *text) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '"' && dec.PeekKind() != 0 {
		return errNotText
	}
	token, err := dec.ReadToken()
	if err == nil {
		*t = text{token.String(), true}
	}
	return err
}

// integer is a JSON number of digits only; one that does not fit is out of any range.
type integer struct {
	value int
	given bool
}

// UnmarshalJSONFrom refuses 40.0 and 4e1.
func (i *integer) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '0' && dec.PeekKind() != 0 {
		return errNotInteger
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(token.String())
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return errNotInteger
	}
	*i = integer{n, true}
	return nil
}
