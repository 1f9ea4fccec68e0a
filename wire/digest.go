package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// A digest is SHA-256 over fields, each after its length in four bytes. It buffers fields,
// because a call of the hash for each field costs more than the hashing.
type digest struct {
	hash hash.Hash
	fed  []byte
	out  [sha256.Size]byte
}

// digestChunk is the number of bytes that are hashed at once.
const digestChunk = 4 << 10

var digests = sync.Pool{New: func() any { return &digest{hash: sha256.New(), fed: make([]byte, 0, digestChunk)} }}

func newDigest() *digest { return digests.Get().(*digest) }

func (d *digest) field(f string) {
	d.fed = binary.BigEndian.AppendUint32(d.fed, uint32(len(f)))
	for len(d.fed)+len(f) > digestChunk {
		n := digestChunk - len(d.fed)
		d.fed = append(d.fed, f[:max(n, 0)]...)
		f = f[max(n, 0):]
		d.hash.Write(d.fed)
		d.fed = d.fed[:0]
	}
	d.fed = append(d.fed, f...)
}

// entry adds a counter, and a delta as eight bytes.
func (d *digest) entry(counter string, delta int64) {
	d.field(counter)
	d.fed = binary.BigEndian.AppendUint64(d.fed, uint64(delta))
}

// sum ends the digest. The caller must not use it again.
func (d *digest) sum() [sha256.Size]byte {
	d.hash.Write(d.fed)
	d.hash.Sum(d.out[:0])
	sum := d.out
	d.hash.Reset()
	d.fed = d.fed[:0]
	digests.Put(d)
	return sum
}

func (d *digest) fingerprint() Fingerprint {
	sum := d.sum()
	return Fingerprint(binary.BigEndian.Uint64(sum[:]))
}

// fingerprintEntries does not depend on the order of the entries.
func fingerprintEntries(entries []Entry) Fingerprint {
	var space [MaxEntries]Entry
	sorted := append(space[:0], entries...)
	SortEntries(sorted)
	d := newDigest()
	for _, e := range sorted {
		d.entry(e.Counter, e.Delta)
	}
	return d.fingerprint()
}
