package recount

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A keyRange has the names whose wire.Order is from From to To. It begins a larger range, which ends at End. A token is
// FROM-END, 16 hexadecimal digits each. If a keyRange was made smaller, the token of the rest is FROM-END-SIZE: the
// next one has the same size.
type keyRange struct{ From, To, End uint64 }

// everything is the range of an empty token.
var everything = keyRange{0, math.MaxUint64, math.MaxUint64}

func parseRange(token string) (keyRange, error) {
	if token == "" {
		return everything, nil
	}
	wrong := &countmill.FieldError{Field: "range", Problem: "is no range of a recount", Limit: "the next of an answer, or FROM-END: the first and the last hash, 16 hexadecimal digits each"}
	texts := strings.Split(token, "-")
	var n [3]uint64
	for i, text := range texts {
		var err error
		if i == len(n) || len(text) != 16 {
			return keyRange{}, wrong
		}
		if n[i], err = strconv.ParseUint(text, 16, 64); err != nil {
			return keyRange{}, wrong
		}
	}
	if len(texts) < 2 || n[0] > n[1] {
		return keyRange{}, wrong
	}
	p := keyRange{n[0], n[1], n[1]}
	if size := n[2]; len(texts) == 3 && size <= p.To-p.From {
		p.To = p.From + size
	}
	return p, nil
}

func (p keyRange) half() keyRange { return keyRange{p.From, p.From + (p.To-p.From)/2, p.End} }

// next is the token of the rest of the range.
func (p keyRange) next() string {
	if p.To == p.End {
		return ""
	}
	return fmt.Sprintf("%016x-%016x-%016x", p.To+1, p.End, p.To-p.From)
}

// done is the share of all places up to the end of the range, in thousandths.
func (p keyRange) done() int { return int(float64(p.To) / math.MaxUint64 * 1000) }

func (p keyRange) has(name string) bool {
	o := wire.Order(name)
	return o >= p.From && o <= p.To
}
