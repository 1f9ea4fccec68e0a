package pebble

import (
	"encoding/binary"
	"errors"
	"time"
	"unsafe"

	"github.com/countmill/countmill/store/engine"
)

// Keys. Two keys are whole names. Every other key begins with the format, the length of the namespace, the namespace and the
// number of a kind.
//
//	0 "countmill"                        the meta record
//	0 "countmill-commits"                the number of synced commits
//	4 n namespace kind place name part   a row of Sums or Docs: 8 bytes of the place, and the part as a byte with its
//	                                     length and so many bytes, if the kind has places or parts
//	4 n namespace kind epoch name        a row of Once: 2 bytes of its epoch
//
// The length of a part is below every byte of a name, so rows are in the order of engine.Key.Compare.
type keyspace struct {
	prefix string
	kinds  engine.Kinds
}

const maxNamespace = 100

func newKeyspace(namespace string, kinds engine.Kinds) keyspace {
	return keyspace{string([]byte{format, byte(len(namespace))}) + namespace, kinds}
}

// kind appends the prefix that all keys of a kind share.
func (s *keyspace) kind(dst []byte, kind engine.KindID) []byte {
	return append(append(dst, s.prefix...), byte(kind))
}

// row appends the key of a row of Sums or Docs.
func (s *keyspace) row(dst []byte, k *engine.Key) []byte {
	kind := &s.kinds[k.Kind]
	dst = s.kind(dst, k.Kind)
	if kind.Places {
		dst = binary.BigEndian.AppendUint64(dst, k.Place)
	}
	dst = append(dst, k.Name...)
	if !kind.Parts {
		return dst
	}
	switch p := k.Part; {
	case p == 0:
		return append(dst, 0)
	case p < 1<<8:
		return append(dst, 1, byte(p))
	case p < 1<<16:
		return append(dst, 2, byte(p>>8), byte(p))
	default:
		return append(dst, 3, byte(p>>16), byte(p>>8), byte(p))
	}
}

// decode returns the key of a row of Sums or Docs. Its name is the memory of b.
func (s *keyspace) decode(id engine.KindID, b []byte) (k engine.Key, ok bool) {
	kind := &s.kinds[id]
	k.Kind = id
	if b = b[len(s.prefix)+1:]; kind.Places {
		if len(b) < 8 {
			return k, false
		}
		k.Place, b = binary.BigEndian.Uint64(b), b[8:]
	}
	if kind.Parts {
		length := 3
		for length >= 0 && (len(b) < length+2 || b[len(b)-length-1] != byte(length)) {
			length--
		}
		if length < 0 {
			return k, false
		}
		for _, x := range b[len(b)-length:] {
			k.Part = k.Part<<8 | uint32(x)
		}
		b = b[:len(b)-length-1]
	}
	if len(b) == 0 {
		return k, false
	}
	k.Name = unsafe.String(&b[0], len(b))
	return k, true
}

// bounds are the first key of a range, and the first one after it.
func (s *keyspace) bounds(r *engine.Range) (lower, upper []byte) {
	from, to := r.From, r.To
	from.Kind, to.Kind = r.Kind, r.Kind
	lower, upper = s.row(nil, &from), after(s.kind(nil, r.Kind))
	if r.After {
		lower = append(lower, 0)
	}
	if r.To != (engine.Key{}) {
		upper = s.row(nil, &to)
	}
	if r.Prefix != "" {
		first := append(s.kind(nil, r.Kind), r.Prefix...)
		if string(first) > string(lower) {
			lower = first
		}
		if end := after(first); string(end) < string(upper) {
			upper = end
		}
	}
	return lower, upper
}

// after returns the first key behind all keys that begin with prefix. A prefix has a byte below 0xff: the form.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; ; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
}

// An epoch is a period of four days. The rows of Once whose Due is in it are dropped together.
type epoch uint16

// Rows without a Due are in the epoch that never ends.
const (
	epochLength       = int64(4 * 24 * time.Hour / time.Microsecond)
	endless     epoch = 1<<16 - 1
)

func epochOf(due int64) (epoch, error) {
	switch n := (due-1)/epochLength + 1; {
	case due == 0:
		return endless, nil
	case due < 0:
		return 0, nil
	case n >= int64(endless):
		return 0, errors.New("a row expires after the year 2687")
	default:
		return epoch(n), nil
	}
}

// over reports whether every Due of the epoch is below before.
func (e epoch) over(before int64) bool { return e != endless && int64(e)*epochLength < before }

// epoch appends the prefix that all keys of an epoch share.
func (s *keyspace) epoch(dst []byte, kind engine.KindID, e epoch) []byte {
	return binary.BigEndian.AppendUint16(s.kind(dst, kind), uint16(e))
}
