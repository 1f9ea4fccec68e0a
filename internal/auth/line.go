package auth

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A line is a Token as JSON.
type line struct {
	Name     string    `json:"name"`
	Hash     string    `json:"hash"`
	Scopes   []Scope   `json:"scopes"`
	Prefixes []string  `json:"prefixes,omitzero"`
	Expires  time.Time `json:"expires,omitzero"`
	Limits
	Public bool `json:"public,omitzero"`
}

// Line returns the token as a line of the file, without the line's end.
func (t Token) Line() string {
	text, err := json.Marshal(line{t.Name, t.hashText(), t.Scopes, t.Prefixes, t.Expires.UTC().Truncate(time.Second), t.Limits, t.Public})
	if err != nil {
		panic(err) // checked texts always encode
	}
	return string(text)
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
	// A null must not mean "no limit", and neither must 0 or the first time of Go, which do elsewhere.
	none := map[string]bool{"expires": l.Expires.IsZero()}
	for i, limit := range l.Limits.all() {
		none[limitFields[i]] = limit == 0
	}
	var given map[string]jsontext.Value
	_ = json.Unmarshal(text, &given) // it was read before
	for _, field := range slices.Sorted(maps.Keys(given)) {
		if given[field].Kind() == 'n' || none[field] {
			return Token{}, fmt.Errorf("%s: %s", field, fieldForm(field))
		}
	}
	t := Token{Name: l.Name, Scopes: l.Scopes, Prefixes: l.Prefixes, Expires: l.Expires, Limits: l.Limits, Public: l.Public}
	if err := t.setHash(l.Hash); err != nil {
		return Token{}, err
	}
	return t, t.check()
}

// fieldForm describes the values that a field takes.
func fieldForm(field string) string {
	switch {
	case slices.Contains(limitFields, field):
		return "must be an integer from 1"
	case field == "prefixes":
		return "must be an array of strings"
	case field == "expires":
		return "must be like 2027-01-02T15:04:05Z"
	}
	return "is of the wrong type"
}

// lineError describes an error without quoting the line.
func lineError(err error) error {
	if errors.Is(err, json.ErrUnknownName) {
		return errors.New("unknown field (limit: name, hash, scopes, prefixes, expires, increments_per_second, bytes_per_second, new_counters_per_hour, public)")
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return errors.New("a field is given twice")
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok && semantic.JSONPointer != "" {
		for field := range semantic.JSONPointer.Tokens() { // a known one: any other was refused
			return fmt.Errorf("%s: %s", field, fieldForm(field))
		}
	}
	return errors.New(`is not a JSON object such as {"name":"web","hash":"sha256:...","scopes":["read"]}`)
}
