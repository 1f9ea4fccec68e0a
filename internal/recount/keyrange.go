package recount

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A keyRange has the names whose wire.Order is from From to To. If a keyRange was made smaller, the token of the next one is
// FROM-SIZE, 16 hexadecimal digits each: it has the same size.
type keyRange struct{ From, To uint64 }

// everything is the range of an empty token.
var everything = keyRange{0, math.MaxUint64}

func parseRange(token string) (keyRange, error) {
	if token == "" {
		return everything, nil
	}
	begin, size, _ := strings.Cut(token, "-")
	from, err := strconv.ParseUint(begin, 16, 64)
	n, err2 := strconv.ParseUint(size, 16, 64)
	if err != nil || err2 != nil || len(begin) != 16 || len(size) != 16 {
		return keyRange{}, &countmill.FieldError{Field: "range", Problem: "is no range of a recount", Limit: "the next of an answer"}
	}
	return keyRange{from, from + min(n, math.MaxUint64-from)}, nil
}

func (p keyRange) half() keyRange { return keyRange{p.From, p.From + (p.To-p.From)/2} }

// next is the token of the range behind it.
func (p keyRange) next() string {
	if p.To == math.MaxUint64 {
		return ""
	}
	return fmt.Sprintf("%016x-%016x", p.To+1, p.To-p.From)
}

// done is the share of all places up to the end of the range, in thousandths.
func (p keyRange) done() int { return int(float64(p.To) / math.MaxUint64 * 1000) }

func (p keyRange) has(name string) bool {
	o := wire.Order(name)
	return o >= p.From && o <= p.To
}
