package protocol

import (
	"strconv"

	"github.com/countmill/countmill/store/engine"
)

// groupedBy is the field of a shard with its grouped part of an index.
func groupedBy(index int64) engine.FieldID { return fieldGrouped + engine.FieldID(index) }

func pieceKey(index int64, id int) engine.Key {
	return engine.Key{Kind: kindPiece, Name: strconv.FormatInt(index, 10), Part: uint32(id)}
}
