package recount

import (
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A piece is the names whose wire.Order is in a range, both ends included. Where it begins is the token of the piece, with
// its size less 1: the next one has the same size.
type piece struct{ From, To uint64 }

func parsePiece(token string) (piece, error) {
	if token == "" {
		return piece{0, math.MaxUint64}, nil
	}
	b, err := hex.DecodeString(token)
	if err != nil || len(b) != 16 {
		return piece{}, &countmill.FieldError{Field: "piece", Problem: "is no piece of a recount", Limit: "the next of the answer before, with the same prefix"}
	}
	return pieceOf(binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])), nil
}

func pieceOf(from, size uint64) piece {
	if to := from + size; to >= from {
		return piece{from, to}
	}
	return piece{from, math.MaxUint64}
}

func (p piece) half() piece { return piece{p.From, p.From + (p.To-p.From)/2} }

func (p piece) next() string {
	if p.To == math.MaxUint64 {
		return ""
	}
	b := binary.BigEndian.AppendUint64(nil, p.To+1)
	return hex.EncodeToString(binary.BigEndian.AppendUint64(b, p.To-p.From))
}

// done is the share of all places up to the end of the piece, in thousandths.
func (p piece) done() int { return int(float64(p.To) / math.MaxUint64 * 1000) }

func (p piece) has(name string) bool {
	o := wire.Order(name)
	return o >= p.From && o <= p.To
}
