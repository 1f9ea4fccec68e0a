package memcached

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/countmill/countmill/reader"
)

// The kinds of keys. They name the format of the value: a change of it is another kind,
// so that readers of both versions live side by side.
const (
	totalKind = "t1:"
	lockKind  = "l1:"
)

// key is the prefix, the kind and 144 bits of the counter's hash.
func (c *Cache) key(kind, counter string) string {
	sum := sha256.Sum256([]byte(counter))
	return c.cfg.Prefix + kind + base64.RawURLEncoding.EncodeToString(sum[:18])
}

// version begins every value.
const version = 1

var errValue = errors.New("not a total")

// encode writes: version, 1 where the counter exists, total and seconds of AsOf as signed
// varints, nanoseconds and shards as unsigned ones, and the name to the end.
func encode(t reader.Cached) []byte {
	b := make([]byte, 0, 2+3*binary.MaxVarintLen64+len(t.Counter))
	b = append(b, version, 0)
	if t.Exists {
		b[1] = 1
	}
	b = binary.AppendVarint(b, t.Total)
	b = binary.AppendVarint(b, t.AsOf.Unix())
	b = binary.AppendUvarint(b, uint64(t.AsOf.Nanosecond()))
	b = binary.AppendUvarint(b, uint64(t.Shards))
	return append(b, t.Counter...)
}

// decode is strict: what encode did not write is no total.
func decode(b []byte) (reader.Cached, error) {
	if len(b) < 2 || b[0] != version || b[1] > 1 {
		return reader.Cached{}, errValue
	}
	d := decoder{rest: b[2:]}
	t := reader.Cached{Exists: b[1] == 1, Total: d.signed()}
	seconds, nanos, shards := d.signed(), d.unsigned(), d.unsigned()
	if d.bad || nanos >= uint64(time.Second) || shards > math.MaxInt32 {
		return reader.Cached{}, errValue
	}
	t.AsOf = time.Unix(seconds, int64(nanos)).UTC()
	t.Shards, t.Counter = int(shards), string(d.rest)
	return t, nil
}

type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.rest)
	return take(d, v, n)
}

func (d *decoder) unsigned() uint64 {
	v, n := binary.Uvarint(d.rest)
	return take(d, v, n)
}

func take[T any](d *decoder, v T, n int) T {
	if n <= 0 {
		d.bad, d.rest = true, nil
		return v
	}
	d.rest = d.rest[n:]
	return v
}

// maxSeconds keeps expirations relative: memcached takes more than 30 days for a date.
const maxSeconds = 30 * 24 * 60 * 60

// expiration is a ttl as memcached counts it. Its clock is whole seconds, looked at once a
// second and a little: an item goes when that has moved on by n, which is up to a second early.
// And as a look is a little later than the one before, now and then one moves by two: one of
// 40 where it had little of the machine. Two seconds more make n whole ones in any case.
func expiration(ttl time.Duration) int32 {
	if ttl >= (maxSeconds-2)*time.Second {
		return maxSeconds
	}
	return int32((ttl+time.Second-1)/time.Second) + 2
}
