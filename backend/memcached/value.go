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

// The kinds of keys. A kind names the format of the value. A new format gets a new kind, so that
// readers of both versions can share a memcached.
const (
	totalKind = "t2:"
	lockKind  = "l1:"
)

// key returns the prefix, the kind and 144 bits of the counter's hash.
func (c *Cache) key(kind, counter string) string {
	var space [maxPrefix + 3 + 24]byte
	sum := sha256.Sum256([]byte(counter))
	key := append(append(space[:0], c.cfg.Prefix...), kind...)
	return string(base64.RawURLEncoding.AppendEncode(key, sum[:18]))
}

const (
	// version is the first byte of every value.
	version = 2
	// checksumLen is the length of the checksum after the version: a nonce of 12 bytes and a tag of 16.
	checksumLen = 28
	// maxValue is the most bytes of a value, far more than a total with a name of 500 bytes needs.
	maxValue = 1 << 10
)

var (
	errValue = errors.New("a value was not written with this key")
	errLarge = fmt.Errorf("a value has more than %d bytes", maxValue)
)

// A codec encodes and decodes values, and makes and verifies their checksums. The checksum is the GMAC of crypto/cipher.
// Nobody can make a value without the key. A flipped bit, and a total of another database, are
// detected.
type codec struct{ aead cipher.AEAD }

func newCodec(key [32]byte) (codec, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return codec{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return codec{aead}, err
}

// encode writes the version, the checksum of the rest, 1 if the counter exists, the total and the
// seconds of AsOf as signed varints, the nanoseconds and the shards as unsigned ones, and the name.
func (s codec) encode(t store.CachedTotal) ([]byte, error) {
	b := make([]byte, 1+checksumLen+1, 1+checksumLen+1+4*binary.MaxVarintLen64+len(t.Counter))
	b[0] = version
	if t.Exists {
		b[1+checksumLen] = 1
	}
	b = binary.AppendVarint(b, t.Total)
	b = binary.AppendVarint(b, t.AsOf.Unix())
	b = binary.AppendUvarint(b, uint64(t.AsOf.Nanosecond()))
	b = binary.AppendUvarint(b, uint64(t.Shards))
	b = append(b, t.Counter...)
	if len(b) > maxValue {
		return nil, fmt.Errorf("memcached: %w: the name has %d", errLarge, len(t.Counter))
	}
	s.aead.Seal(b[:1], nil, nil, b[1+checksumLen:])
	return b, nil
}

// decode is strict: it refuses bytes that encode would not write. If the value has the name counter,
// the total gets that string; otherwise it gets the name from the value.
func (s codec) decode(b []byte, counter string) (store.CachedTotal, error) {
	switch {
	case len(b) > maxValue:
		return store.CachedTotal{}, errLarge
	case len(b) < 1+checksumLen+1 || b[0] != version:
		return store.CachedTotal{}, errValue
	}
	payload := b[1+checksumLen:]
	if _, err := s.aead.Open(nil, nil, b[1:1+checksumLen], payload); err != nil || payload[0] > 1 {
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
	if string(d.rest) != counter { // this comparison does not allocate
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

// expiration returns the seconds that memcached must be given so that an item lives for ttl.
// memcached's clock has whole seconds. It is read a little less than once a second, and an item goes
// when it has moved on by n: that is up to a second early. Because each reading is a little late, now
// and then the clock moves by two: on a busy machine one time in 40. Two more seconds make up for both.
func expiration(ttl time.Duration) int32 {
	if ttl >= (maxSeconds-2)*time.Second {
		return maxSeconds
	}
	return int32((ttl+time.Second-1)/time.Second) + 2
}
