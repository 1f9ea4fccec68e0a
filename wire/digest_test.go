package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// Ids and fingerprints are compared with stored ones: they must not depend on how the bytes are
// buffered.
func TestDigestIsOfLengthsAndFields(t *testing.T) {
	t.Parallel()
	lengths := []int{0, 1, 3, 4, 499, 500, digestChunk - 13, digestChunk - 12, digestChunk - 8, digestChunk - 5, digestChunk - 4, digestChunk - 3, digestChunk, 3 * digestChunk}
	var group sync.WaitGroup
	for seed := range uint64(8) { // at once: digests are used again
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 0))
			for range 200 {
				var want []byte
				d := newDigest()
				for range rng.IntN(12) {
					f := strings.Repeat(string(rune('a'+rng.IntN(26))), lengths[rng.IntN(len(lengths))])
					want = append(binary.BigEndian.AppendUint32(want, uint32(len(f))), f...)
					if rng.IntN(2) == 0 {
						d.field(f)
						continue
					}
					delta := rng.Int64()
					d.entry(f, delta)
					want = binary.BigEndian.AppendUint64(want, uint64(delta))
				}
				if got := d.sum(); got != sha256.Sum256(want) {
					t.Errorf("seed %d: the digest of %d bytes is not their SHA-256", seed, len(want))
				}
			}
		})
	}
	group.Wait()
}
