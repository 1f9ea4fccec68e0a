package journal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/countmill/countmill/store"
)

// A Sealer seals records with a key that is not in the store, so that a change of a record in the
// store is noticed. A nil Sealer seals nothing.
//
// The seal is HMAC-SHA256 over the record's key and its parts, with each entry as the SHA-256 of its
// salt, delta and counter. So an entry can be replaced by its hash, and the seal still holds.
type Sealer struct{ key [sha256.Size]byte }

// MinKey is the least number of bytes of a Sealer's key.
const MinKey = 32

// NewSealer returns a Sealer of a key of at least MinKey bytes.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) < MinKey {
		return nil, fmt.Errorf("the journal's key has %d bytes (limit: at least %d random bytes)", len(key), MinKey)
	}
	return &Sealer{sha256.Sum256(append([]byte("countmill journal key\n"), key...))}, nil
}

// KeyName is a short hash of a key, which does not show the key. Processes with different keys have different names. Without a key it
// is "none".
func KeyName(key []byte) string {
	if key == nil {
		return "none"
	}
	sum := sha256.Sum256(append([]byte("countmill name of a journal key\n"), key...))
	return hex.EncodeToString(sum[:4])
}

// Seal draws a salt for each entry, and seals the record. random must be unpredictable.
func (s *Sealer) Seal(r *Record, key store.JournalKey, random io.Reader) error {
	if s == nil {
		return nil
	}
	n := 0
	for i := range r.Parts {
		n += len(r.Parts[i].Entries)
	}
	salts := make([]byte, n*saltLen)
	if _, err := io.ReadFull(random, salts); err != nil {
		return err
	}
	for i := range r.Parts {
		for k := range r.Parts[i].Entries {
			copy(r.Parts[i].Entries[k].Salt[:], salts)
			salts = salts[saltLen:]
		}
	}
	r.Sealed, r.Seal = true, s.seal(r, key)
	return nil
}

var (
	errUnsealed = errors.New("has no seal")
	errSeal     = errors.New("is not what was sealed, or it was sealed with another key")
)

// Check reports a record that is not as it was sealed.
func (s *Sealer) Check(r *Record, key store.JournalKey) error {
	if !r.Sealed {
		return errUnsealed
	}
	if want := s.seal(r, key); !hmac.Equal(want[:], r.Seal[:]) {
		return errSeal
	}
	return nil
}

func (s *Sealer) seal(r *Record, key store.JournalKey) (sum [hashLen]byte) {
	mac := hmac.New(sha256.New, s.key[:])
	_, _ = mac.Write(key[:])
	var head []byte
	if r.Kind != AppliedKind {
		head = append(head, byte(r.Kind))
		if r.Kind == OpeningKind {
			head = r.Opening.Encode(head)
		}
		_, _ = mac.Write(head)
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		head = append(head[:0], p.ID[:]...)
		head = binary.BigEndian.AppendUint64(head, uint64(p.Fingerprint))
		head = binary.AppendUvarint(head, uint64(p.Minute))
		head = appendText(head, p.Sender)
		head = binary.AppendUvarint(head, uint64(len(p.Entries)))
		_, _ = mac.Write(head)
		for k := range p.Entries {
			hash := p.Entries[k].hash()
			_, _ = mac.Write(hash[:])
		}
	}
	mac.Sum(sum[:0])
	return sum
}

// hash returns the hash that replaces the entry in a sealed record when it is erased.
func (e *Entry) hash() [hashLen]byte {
	if e.Erased {
		return e.Hash
	}
	text := append(make([]byte, 0, saltLen+8+len(e.Counter)), e.Salt[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(e.Delta))
	return sha256.Sum256(append(text, e.Counter...))
}

// Erase replaces an entry by its hash; without a seal, by nothing.
func (r *Record) Erase(e *Entry) {
	erased := Entry{Erased: true}
	if r.Sealed {
		erased.Hash = e.hash()
	}
	*e = erased
}
