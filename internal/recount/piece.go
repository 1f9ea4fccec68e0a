package recount

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A piece is the names whose wire.Order is in a range, both ends included. It begins a larger range, which ends at
// End. The token of the range is FROM-END, 16 hexadecimal digits each. If a piece was made smaller, the token of the rest is
// FROM-END-SIZE: the next piece has the same size.
type piece struct{ From, To, End uint64 }

// everything is the piece of an empty token.
var everything = piece{0, math.MaxUint64, math.MaxUint64}

func parsePiece(token string) (piece, error) {
	if token == "" {
		return everything, nil
	}
	wrong := &countmill.FieldError{Field: "piece", Problem: "is no piece of a recount", Limit: "the next of an answer, or FROM-END: the first and the last hash, 16 hexadecimal digits each"}
	texts := strings.Split(token, "-")
	var n [3]uint64
	for i, text := range texts {
		var err error
		if i == len(n) || len(text) != 16 {
			return piece{}, wrong
		}
		if n[i], err = strconv.ParseUint(text, 16, 64); err != nil {
			return piece{}, wrong
		}
	}
	if len(texts) < 2 || n[0] > n[1] {
		return piece{}, wrong
	}
	p := piece{n[0], n[1], n[1]}
	if size := n[2]; len(texts) == 3 && size <= p.To-p.From {
		p.To = p.From + size
	}
	return p, nil
}

func (p piece) half() piece { return piece{p.From, p.From + (p.To-p.From)/2, p.End} }

// next is the token of the rest of the range.
func (p piece) next() string {
	if p.To == p.End {
		return ""
	}
	return fmt.Sprintf("%016x-%016x-%016x", p.To+1, p.End, p.To-p.From)
}

// done is the share of all places up to the end of the piece, in thousandths.
func (p piece) done() int { return int(float64(p.To) / math.MaxUint64 * 1000) }

func (p piece) has(name string) bool {
	o := wire.Order(name)
	return o >= p.From && o <= p.To
}
