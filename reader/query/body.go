package query

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
)

const wantCounters = `{"counters": [...]}, 1 to 1000 strings`

// readBody reads {"counters": [...]}, strictly: no unknown, repeated or
// differently-cased fields, no lone surrogates, no null, nothing after the end.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]string, error) {
	held := 0
	defer func() { h.pending.Add(int64(-held)) }()
	body, err := api.BodyReader{Max: api.MaxBody, Timeout: h.cfg.BodyTimeout, Grow: func(n int) error {
		if h.pending.Add(int64(n)) > int64(h.cfg.MaxPending) {
			h.pending.Add(int64(-n))
			return fmt.Errorf("%w: bodies of %d bytes are held", countmill.ErrOverloaded, h.cfg.MaxPending)
		}
		held += n
		return nil
	}}.Read(w, r, nil)
	if err != nil {
		return nil, err
	}
	return parseCounters(body)
}

func parseCounters(body []byte) ([]string, error) {
	var request struct {
		Counters names `json:"counters"`
	}
	if err := json.Unmarshal(body, &request, json.RejectUnknownMembers(true)); err != nil {
		return nil, bodyError(err)
	}
	return request.Counters, nil
}

// names are decoded by hand, to stop at the limit: millions of "" fit into a body.
type names []string

// UnmarshalJSONFrom reads an array of strings.
func (n *names) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '[' {
		return errNotStrings
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		token, err := dec.ReadToken()
		switch {
		case err != nil:
			return err
		case token.Kind() != '"':
			return errNotStrings
		case len(*n) == MaxBodyCounters:
			return &countmill.FieldError{Field: "counters", Problem: "holds too many", Limit: wantCounters}
		}
		*n = append(*n, token.String())
	}
	_, err := dec.ReadToken()
	return err
}

var errNotStrings = &countmill.FieldError{Field: "counters", Problem: "is not an array of strings", Limit: wantCounters}

// bodyError says what is wrong in the words of the API, without those of Go.
func bodyError(err error) error {
	if field, ok := errors.AsType[*countmill.FieldError](err); ok {
		return field
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(err, json.ErrUnknownName) {
			return &countmill.FieldError{Field: semantic.JSONPointer.LastToken(), Problem: "is not a field", Limit: "counters"}
		}
		return &countmill.FieldError{Field: "body", Problem: "is not an object", Limit: wantCounters}
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return &countmill.FieldError{Field: "body", Problem: "has a field twice", Limit: wantCounters}
	}
	problem := "is not JSON"
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		problem += fmt.Sprintf(" at byte %d: %v", syntactic.ByteOffset, syntactic.Err)
	}
	return &countmill.FieldError{Field: "body", Problem: problem, Limit: wantCounters}
}
