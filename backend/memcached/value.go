package memcached

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/countmill/countmill/store"
)

// The kinds of keys. They name the format of the value: a change of it is another kind,
// so that readers of both versions live side by side.
const (
	totalKind = "t2:"
	lockKind  = "l1:"
)

// key is the prefix, the kind and 144 bits of the counter's hash.
func (c *Cache) key(kind, counter string) string {
	var space [maxPrefix + 3 + 24]byte
	sum := sha256.Sum256([]byte(counter))
	key := append(append(space[:0], c.cfg.Prefix...), kind...)
	return string(base64.RawURLEncoding.AppendEncode(key, sum[:18]))
}

const (
	// version begins every value.
	version = 2
	// sealed is how long the checksum is that follows it: a nonce of 12 bytes and a tag of 16.
	sealed = 28
	// maxValue is far beyond a total, whose name has at most 500 bytes.
	maxValue = 1 << 10
)

var (
	errValue = errors.New("a value was not written with this key")
	errLarge = fmt.Errorf("a value has more than %d bytes", maxValue)
)

// A sealer makes and compares the checksums of values: GMAC, as crypto/cipher has it. Nobody
// makes a value without the key; a bit that flips, or a total of another database, does not pass.
type sealer struct{ aead cipher.AEAD }

func newSealer(key [32]byte) (sealer, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return sealer{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead}, err
}

// encode writes: version, checksum of what follows, 1 where the counter exists, total and seconds
// of AsOf as signed varints, nanoseconds and shards as unsigned ones, and the name to the end.
func (s sealer) encode(t store.CachedTotal) ([]byte, error) {
	b := make([]byte, 1+sealed+1, 1+sealed+1+4*binary.MaxVarintLen64+len(t.Counter))
	b[0] = version
	if t.Exists {
		b[1+sealed] = 1
	}
	b = binary.AppendVarint(b, t.Total)
	b = binary.AppendVarint(b, t.AsOf.Unix())
	b = binary.AppendUvarint(b, uint64(t.AsOf.Nanosecond()))
	b = binary.AppendUvarint(b, uint64(t.Shards))
	b = append(b, t.Counter...)
	if len(b) > maxValue {
		return nil, fmt.Errorf("memcached: %w: the name has %d", errLarge, len(t.Counter))
	}
	s.aead.Seal(b[:1], nil, nil, b[1+sealed:])
	return b, nil
}

// decode is strict: it refuses bytes that encode did not write. counter is the name that is
// expected; the total has the name that was written.
func (s sealer) decode(b []byte, counter string) (store.CachedTotal, error) {
	switch {
	case len(b) > maxValue:
		return store.CachedTotal{}, errLarge
	case len(b) < 1+sealed+1 || b[0] != version:
		return store.CachedTotal{}, errValue
	}
	payload := b[1+sealed:]
	if _, err := s.aead.Open(nil, nil, b[1:1+sealed], payload); err != nil || payload[0] > 1 {
		return store.CachedTotal{}, errValue
	}
	d := decoder{rest: payload[1:]}
	t := store.CachedTotal{Exists: payload[0] == 1, Total: d.signed()}
	seconds, nanos, shards := d.signed(), d.unsigned(), d.unsigned()
	if d.bad || nanos >= uint64(time.Second) || shards > math.MaxInt32 {
		return store.CachedTotal{}, errValue
	}
	t.AsOf = time.Unix(seconds, int64(nanos)).UTC()
	t.Shards, t.Counter = int(shards), counter
	if string(d.rest) != counter { // this does not allocate
		t.Counter = string(d.rest)
	}
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
