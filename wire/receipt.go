package wire

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

const (
	// MaxReceiptSpans is the most spans of a receipt, MaxReceiptMessages the most messages in all of
	// them together: a reader looks up a marker for each message.
	MaxReceiptSpans, MaxReceiptMessages = 64, 1000

	// maxReceipt is the most bytes of a receipt's text.
	maxReceipt = 4 << 10

	receiptVersion = 1
)

// A Receipt names messages on the bus. A reader that gets it answers totals that contain all
// increments of these messages, or reports that they are not counted yet.
//
// Each of its messages has a completion marker: a marker that is applied when every other part of the message is
// settled. So one look-up per message shows whether all of it was settled, whatever its size.
type Receipt struct {
	// Database identifies the database; 0 if the publisher has none.
	Database DatabaseTag
	// Time is when the oldest increment of the messages was added, in microseconds. The
	// deduplication window counts from here.
	Time time.Time
	// Spans are the messages. A receipt without spans is about nothing, and so counted.
	Spans []Span
}

// A Span is the messages First to Last of one flush.
type Span struct {
	Flush       FlushHash
	First, Last int
	// Single means that Last has a single anonymous part, which is its own completion marker.
	Single bool
}

// A DatabaseTag is four bytes that are the same for all processes of a database. Two databases have
// the same tag by chance only.
type DatabaseTag [4]byte

// TagOf is the tag of the database with that id; 0 for an empty id.
func TagOf(id string) (t DatabaseTag) {
	if id == "" {
		return t
	}
	h := hashID(0, "database", id)
	copy(t[:], h[len(h)-len(t):])
	return t
}

// A FlushHash names a flush in receipts. From a receipt nobody can make a message of its flush.
type FlushHash [16]byte

// Hash returns the flush's name in receipts.
func (s FlushID) Hash() FlushHash { return FlushHash(hashID(0, "flush", string(s[:]))) }

// ForeignHash is the name in receipts of a message that another program put on the topic. Its
// number is 0.
func ForeignHash(topic, brokerID string) FlushHash {
	return FlushHash(hashID(0, "foreign", topic, brokerID))
}

// Completion is the id of the marker that says that message number is settled.
func (h FlushHash) Completion(number int) PartID {
	return hashID(CompletionClass, string(h[:]), strconv.Itoa(number))
}

// Single is the id of the anonymous part that is alone in message number, and so its own completion marker. An
// identified part cannot be: its marker may be of another message.
func (h FlushHash) Single(number int) PartID { return h.Completion(number).in(AnonymousClass) }

// Completion is the completion marker behind the id of a single part.
func (id PartID) Completion() PartID { return id.in(CompletionClass) }

// IsSingle reports whether the batch's only part is its own completion marker.
func (b *Batch) IsSingle() bool {
	return b.Flush != (FlushID{}) && len(b.Parts) == 1 && b.Parts[0].Kind == Anonymous &&
		b.Parts[0].ID == b.Flush.Hash().Single(b.Number)
}

// Span is the batch's message in receipts. The batch must have a flush.
func (b *Batch) Span() Span {
	return Span{Flush: b.Flush.Hash(), First: b.Number, Last: b.Number, Single: b.IsSingle()}
}

// Add adds messages to the receipt. Spans that follow each other become one.
func (r *Receipt) Add(spans ...Span) {
	for _, s := range spans {
		if n := len(r.Spans); n > 0 {
			last := &r.Spans[n-1]
			if last.Flush == s.Flush && !last.Single && last.Last+1 == s.First {
				last.Last, last.Single = s.Last, s.Single
				continue
			}
		}
		r.Spans = append(r.Spans, s)
	}
}

// IsZero reports whether there is no receipt.
func (r Receipt) IsZero() bool { return r.Time.IsZero() }

// Messages counts the messages of all spans.
func (r Receipt) Messages() (n int) {
	for _, s := range r.Spans {
		n += s.Last - s.First + 1
	}
	return n
}

// Completions returns the ids of the completion markers, one for each message.
func (r Receipt) Completions() []PartID {
	ids := make([]PartID, 0, r.Messages())
	for _, s := range r.Spans {
		for n := s.First; n <= s.Last; n++ {
			if s.Single && n == s.Last {
				ids = append(ids, s.Flush.Single(n))
				continue
			}
			ids = append(ids, s.Flush.Completion(n))
		}
	}
	return ids
}

// String returns the receipt as text for ParseReceipt: letters, digits, - and _; about 47 characters
// for one span. A zero receipt is empty.
func (r Receipt) String() string {
	if r.IsZero() {
		return ""
	}
	b := append([]byte{receiptVersion}, r.Database[:]...)
	b = binary.AppendUvarint(b, uint64(r.Time.UnixMicro()))
	for _, s := range r.Spans {
		b = append(b, s.Flush[:]...)
		b = binary.AppendUvarint(b, uint64(s.First))
		more := uint64(s.Last-s.First) << 1
		if s.Single {
			more |= 1
		}
		b = binary.AppendUvarint(b, more)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// foreignReceipt begins a receipt that another program has made.
const foreignReceipt = "message:"

// ParseReceipt reads the text of a receipt, or message:TIME:TOPIC:ID for a message in JSON that
// another program has published: TIME is when, in seconds since 1970, TOPIC the topic's name and ID
// the broker's id of the message. The error is a *countmill.FieldError of the field after.
func ParseReceipt(text string) (r Receipt, err error) {
	if len(text) > maxReceipt {
		return r, badReceipt("is too long")
	}
	if of, ok := strings.CutPrefix(text, foreignReceipt); ok {
		return parseForeign(of)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1+len(r.Database)+1+4 {
		return r, badReceipt("is not a receipt")
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(b) != sum {
		return r, badReceipt("is damaged or cut off")
	}
	if b[0] != receiptVersion {
		return r, badReceipt(fmt.Sprintf("is of version %d", b[0]))
	}
	b = b[1:]
	b = b[copy(r.Database[:], b):]
	us, n := binary.Uvarint(b)
	if n <= 0 || us > math.MaxInt64 || !InRange(time.UnixMicro(int64(us))) {
		return r, badReceipt("has no time")
	}
	r.Time = time.UnixMicro(int64(us)).UTC()
	for b = b[n:]; len(b) > 0; {
		var s Span
		if s, b, err = parseSpan(b); err != nil {
			return r, err
		}
		if r.Spans = append(r.Spans, s); len(r.Spans) > MaxReceiptSpans || r.Messages() > MaxReceiptMessages {
			return r, badReceipt("is about too many messages")
		}
	}
	return r, nil
}

func parseSpan(b []byte) (s Span, rest []byte, err error) {
	if len(b) < len(s.Flush) {
		return s, nil, badReceipt("is not a receipt")
	}
	b = b[copy(s.Flush[:], b):]
	first, n := binary.Uvarint(b)
	if n <= 0 || first > math.MaxInt32 {
		return s, nil, badReceipt("is not a receipt")
	}
	b = b[n:]
	more, n := binary.Uvarint(b)
	if n <= 0 || more>>1 >= MaxReceiptMessages {
		return s, nil, badReceipt("is about too many messages")
	}
	s.First, s.Last, s.Single = int(first), int(first+more>>1), more&1 != 0
	return s, b[n:], nil
}

func parseForeign(text string) (r Receipt, err error) {
	pieces := strings.SplitN(text, ":", 3)
	if len(pieces) != 3 || pieces[1] == "" || pieces[2] == "" {
		return r, badReceipt("is not message:TIME:TOPIC:ID")
	}
	seconds, err := strconv.ParseInt(pieces[0], 10, 64)
	if err != nil || seconds <= 0 || !InRange(time.Unix(seconds, 0)) {
		return r, badReceipt("has a time that is no number of seconds since 1970")
	}
	return Receipt{Time: time.Unix(seconds, 0).UTC(), Spans: []Span{{Flush: ForeignHash(pieces[1], pieces[2])}}}, nil
}

func badReceipt(problem string) error {
	return &countmill.FieldError{Field: "after", Problem: problem, Limit: "the receipt of a 202, or message:TIME:TOPIC:ID"}
}
