package auth

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A line is a Token as JSON. Optional fields are kept as raw JSON, because null must not mean "no
// limit".
type line struct {
	Name     string         `json:"name"`
	Hash     string         `json:"hash"`
	Scopes   []Scope        `json:"scopes"`
	Prefixes jsontext.Value `json:"prefixes,omitzero"`
	Expires  jsontext.Value `json:"expires,omitzero"`

	Increments  jsontext.Value `json:"increments_per_second,omitzero"`
	Bytes       jsontext.Value `json:"bytes_per_second,omitzero"`
	NewCounters jsontext.Value `json:"new_counters_per_hour,omitzero"`

	Public bool `json:"public,omitzero"`
}

// limits returns the fields of Limits by their names.
func (l *line) limits() map[string]*jsontext.Value {
	return map[string]*jsontext.Value{
		"increments_per_second": &l.Increments, "bytes_per_second": &l.Bytes, "new_counters_per_hour": &l.NewCounters,
	}
}

// Line returns the token as a line of the file, without the line's end.
func (t Token) Line() string {
	l := line{Name: t.Name, Hash: t.hashText(), Scopes: t.Scopes, Public: t.Public}
	if t.Prefixes != nil {
		l.Prefixes = mustJSON(t.Prefixes)
	}
	if !t.Expires.IsZero() {
		l.Expires = mustJSON(t.Expires.UTC().Format(time.RFC3339))
	}
	fields := l.limits()
	t.Limits.named(func(field string, limit *int64, _ int64) {
		if *limit != 0 {
			*fields[field] = mustJSON(*limit)
		}
	})
	return string(mustJSON(l))
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // checked texts always encode
	}
	return text
}

// Limits of a file. Each request compares its token with every one in the file.
const (
	maxFile   = 1 << 20
	maxTokens = 1000
)

// An Entry is a line of a file that is neither blank nor a comment.
type Entry struct {
	Line       int   // from 1
	Token      Token // of no meaning if Err is set
	Err        error // the reason, for a line without a token; it quotes nothing of the line
	begin, end int   // of the line in the text, with its end
}

// Entries reads each line by itself, so one mistake hides no other token.
func Entries(text []byte) []Entry {
	var entries []Entry
	seen := make(map[[sha256.Size]byte]bool)
	number, begin := 0, 0
	for l := range bytes.Lines(text) {
		e := Entry{Line: number + 1, begin: begin, end: begin + len(l)}
		number, begin = e.Line, e.end
		if l = bytes.TrimSpace(l); len(l) == 0 || l[0] == '#' {
			continue
		}
		e.Token, e.Err = parseLine(l)
		if e.Err == nil && seen[e.Token.hash] {
			e.Err = errors.New("hash: is listed twice")
		}
		seen[e.Token.hash] = true
		entries = append(entries, e)
	}
	return entries
}

// Parse reads the text of a file, which may contain no token. Its error names the line, and quotes
// nothing of it.
func Parse(text []byte) ([]Token, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("it is over %d bytes", maxFile)
	}
	var tokens []Token
	for _, e := range Entries(text) {
		if e.Err != nil {
			return nil, fmt.Errorf("line %d: %w", e.Line, e.Err)
		}
		tokens = append(tokens, e.Token)
	}
	if len(tokens) > maxTokens {
		return nil, fmt.Errorf("it holds %d tokens (limit: %d)", len(tokens), maxTokens)
	}
	return tokens, nil
}

func parseLine(text []byte) (Token, error) {
	var l line
	if err := json.Unmarshal(text, &l, json.RejectUnknownMembers(true)); err != nil {
		return Token{}, lineError(err)
	}
	t := Token{Name: l.Name, Scopes: l.Scopes, Public: l.Public}
	if err := t.setHash(l.Hash); err != nil {
		return Token{}, err
	}
	if l.Prefixes != nil {
		if err := json.Unmarshal(l.Prefixes, &t.Prefixes); err != nil || l.Prefixes.Kind() != '[' {
			return Token{}, errors.New("prefixes: must be an array of strings")
		}
	}
	if l.Expires != nil {
		if err := json.Unmarshal(l.Expires, &t.Expires); err != nil || t.Expires.IsZero() {
			return Token{}, errors.New("expires: must be like 2027-01-02T15:04:05Z")
		}
	}
	if err := l.readLimits(&t.Limits); err != nil {
		return Token{}, err
	}
	return t, t.check()
}

// readLimits reads the limits of the line. It refuses 0, which means "no limit" elsewhere.
func (l *line) readLimits(limits *Limits) error {
	var errs []error
	fields := l.limits()
	limits.named(func(field string, limit *int64, most int64) {
		text := *fields[field]
		if text == nil {
			return
		}
		if err := json.Unmarshal(text, limit); err != nil || text.Kind() != '0' || *limit < 1 || *limit > most {
			errs = append(errs, fmt.Errorf("%s: must be an integer from 1 to %d", field, most))
		}
	})
	return errors.Join(errs...)
}

// lineError describes an error without quoting the line.
func lineError(err error) error {
	if errors.Is(err, json.ErrUnknownName) {
		return errors.New("unknown field (limit: name, hash, scopes, prefixes, expires, increments_per_second, bytes_per_second, new_counters_per_hour, public)")
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return errors.New("a field is given twice")
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if field := semantic.JSONPointer.LastToken(); slices.Contains([]string{"name", "hash", "scopes", "public"}, field) {
			return fmt.Errorf("%s: is of the wrong type", field)
		}
	}
	return errors.New(`is not a JSON object such as {"name":"web","hash":"sha256:...","scopes":["read"]}`)
}
