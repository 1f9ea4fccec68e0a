package pebble

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/countmill/countmill/wire"
)

// Keys. Two keys are whole names. Every other key begins with the format, the length of the namespace,
// the namespace, and a kind.
//
//	0 "countmill"                          meta
//	0 "countmill-commits"                  the number of synced commits
//	3 n namespace 's' order name shard     a shard: 8 bytes of wire.Order, so that
//	                                       the adds of a sorted commit are in key order;
//	                                       2 bytes of shard number
//	3 n namespace 'r' name                 a counter's record, in byte order of names
//	3 n namespace 'm' epoch id             a marker: 2 bytes of epoch, 16 of id
//	3 n namespace 'd' key                  a dead letter
//	3 n namespace 'a' completion key       parts of a message in a dead letter: 16 bytes
//	                                       of the completion marker's id, the letter's key
//	3 n namespace 'w' id                   a worker
//	3 n namespace 'b' day order name       a day of a counter's series: 4 bytes of the day
//	3 n namespace 'j' day                  what the last sweep did with a day
//	3 n namespace 'i' index range          a range of an index's work: 8 bytes of the
//	                                       index's number, 4 of the range's
//	3 n namespace 't' index range group    a range's part of a group's remainder
//	3 n namespace 'g' group                a group's remainder: the sum of its ranges' parts
//	3 n namespace 'q' name                 a sequence
//	3 n namespace 'l' key                  a record of the journal: store.JournalKey
//	3 n namespace 'p' length counter place a row of the journal: 2 bytes of length, 20
//	                                       of the place
//	3 n namespace 'e' hour key             when a record of the journal may go: 4 bytes
//	                                       of the hour
//	3 n namespace 'x' name                 a counter that was deleted; its record may say
//	                                       by now that it exists again
//
// Numbers are big-endian.
const (
	format = 3

	kindShard         = 's'
	kindRecord        = 'r'
	kindMarker        = 'm'
	kindDead          = 'd'
	kindDeadLetterRef = 'a'
	kindGone          = 'x'
	kindWorker        = 'w'
	kindSeries        = 'b'
	kindStage         = 'j'
	kindIndexRange    = 'i'
	kindRemainders    = 't'
	kindRemainder     = 'g'

	kindSequence = 'q'
	kindJournal  = 'l'
	kindRow      = 'p'
	kindExpiry   = 'e'

	maxNamespace = 100
)

var metaKey = []byte("\x00countmill")

// A keyspace makes the keys of one namespace.
type keyspace struct{ prefix string }

func newKeyspace(namespace string) keyspace {
	return keyspace{string([]byte{format, byte(len(namespace))}) + namespace}
}

// kindOf returns the kind of a key, or 0 if the key has none.
func kindOf(key []byte) byte {
	if len(key) < 3 || key[0] != format {
		return 0
	}
	if at := 2 + int(key[1]); at < len(key) {
		return key[at]
	}
	return 0
}

// kind appends the prefix that all keys of a kind share.
func (k keyspace) kind(dst []byte, kind byte) []byte {
	return append(append(dst, k.prefix...), kind)
}

// named appends the key of a kind and a name.
func (k keyspace) named(dst []byte, kind byte, name string) []byte {
	return append(k.kind(dst, kind), name...)
}

func (k keyspace) namedLen(name string) int { return len(k.prefix) + 1 + len(name) }

func (k keyspace) shardLen(counter string) int { return len(k.prefix) + 1 + 8 + len(counter) + 2 }

func (k keyspace) shard(dst []byte, order uint64, counter string, shard int) []byte {
	dst = k.kind(dst, kindShard)
	dst = binary.BigEndian.AppendUint64(dst, order)
	dst = append(dst, counter...)
	return binary.BigEndian.AppendUint16(dst, uint16(shard))
}

// An epoch is a period of four days. The markers of parts from that period are dropped together.
type epoch uint16

const (
	epochLength = 4 * 24 * time.Hour
	lastEpoch   = 1<<16 - 1
)

// epochOf returns the epoch that contains t.
func epochOf(t time.Time) (epoch, error) {
	us := t.UnixMicro()
	if us <= 0 {
		return 0, nil
	}
	length := epochLength.Microseconds()
	n := (us-1)/length + 1
	if n > lastEpoch {
		return 0, errors.New("a marker has a time after the year 2687")
	}
	return epoch(n), nil
}

// end is the latest time of a part in the epoch.
func (e epoch) end() time.Time { return time.UnixMicro(int64(e) * epochLength.Microseconds()) }

// epoch appends the prefix that all keys of an epoch share.
func (k keyspace) epoch(dst []byte, e epoch) []byte {
	return binary.BigEndian.AppendUint16(k.kind(dst, kindMarker), uint16(e))
}

func (k keyspace) marker(dst []byte, e epoch, id wire.PartID) []byte {
	return append(k.epoch(dst, e), id[:]...)
}

// after returns the first key behind all keys that begin with prefix. The prefix must contain a byte
// below 0xff; every prefix here does.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; ; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
}
