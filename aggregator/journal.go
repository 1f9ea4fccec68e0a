package aggregator

import (
	"encoding/binary"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A journaler finds the entries of counters with a journal, and counts the entities that they add to the commit of a
// job: a record for each journal.MaxRecord bytes of one retention, and a row for each entry of a paged
// counter. It is not safe for concurrent use. A nil journaler finds none.
type journaler struct {
	rules *store.Rules
	room  map[time.Duration]int // left in the last record of the open job, by retention
}

func newJournaler(rules *store.Rules) *journaler {
	if rules == nil || len(rules.Journal) == 0 {
		return nil
	}
	return &journaler{rules: rules, room: make(map[time.Duration]int)}
}

// A share is the entries of one part in the records of one retention.
type share struct {
	keep  time.Duration
	part  *part
	size  int   // at most, in bytes
	of    []int // positions in part.Entries
	paged []bool
}

// sharesOf returns the shares of a part, which is nearly always none or one.
func (j *journaler) sharesOf(p *part) (shares []share) {
	for i := range p.Entries {
		rule := j.rules.JournalOf(p.Entries[i].Counter)
		if rule == nil {
			continue
		}
		at := 0
		for at < len(shares) && shares[at].keep != rule.Keep.Entries {
			at++
		}
		if at == len(shares) {
			shares = append(shares, share{keep: rule.Keep.Entries, part: p, size: journal.MaxPartSize(p.sender())})
		}
		s := &shares[at]
		s.of, s.paged, s.size = append(s.of, i), append(s.paged, rule.Keep.Paged), s.size+journal.MaxEntrySize(p.Entries[i].Counter)
	}
	return shares
}

// sender is who sent the part, as far as the part says.
func (p *part) sender() string {
	head := p
	if p.head != nil {
		head = p.head
	}
	if p.Sender == "" && head.Key != nil {
		return head.Key.Principal
	}
	return p.Sender
}

// count is the number of entities that a part adds to a job whose last records have that room left. It
// takes the room.
func (j *journaler) count(p *part, room map[time.Duration]int) (n int) {
	for _, s := range j.sharesOf(p) {
		for _, paged := range s.paged {
			if paged {
				n++
			}
		}
		if room[s.keep] < s.size {
			n, room[s.keep] = n+1, journal.MaxRecord
		}
		room[s.keep] -= s.size
	}
	return n
}

// countNew is the number of entities that a part adds to the open job.
func (j *journaler) countNew(p *part) int {
	if j == nil {
		return 0
	}
	room := make(map[time.Duration]int, len(j.room))
	for keep, left := range j.room {
		room[keep] = left
	}
	return j.count(p, room)
}

// take adds a part to the open job.
func (j *journaler) take(p *part) {
	if j != nil {
		j.count(p, j.room)
	}
}

// clear begins another job.
func (j *journaler) clear() {
	if j != nil {
		clear(j.room)
	}
}

// An openRecord has room for more parts.
type openRecord struct {
	journal.Record
	room  int
	rows  []journalRow
	count uint32 // entries so far
}

// A journalRow is a row to be made when its record has a key.
type journalRow struct {
	counter  string
	position uint32
	data     []byte
}

// record adds the evidence of an attempt to its commit. The caller calls done after the fold.
func (a *Aggregator) record(c *store.Commit, o *outcome, x *tally, s *snapshot) (done func()) {
	if s.Rules == nil || len(s.Rules.Journal) == 0 {
		return func() {}
	}
	at, done := a.store.JournalMoment(a.clock.Now())
	a.evidence(c, o.rest, s.Rules, x.now, at)
	// The attempt is over when the store has its fold.
	return done
}

// evidence makes the records and rows of a commit that applies the parts. They count by the time
// now, and the records are of the moment at. parts are the parts that the commit applies: a part that another
// commit has applied has its record there.
func (a *Aggregator) evidence(c *store.Commit, parts []*part, rules *store.Rules, now, at time.Time) {
	j := newJournaler(rules)
	open := make(map[time.Duration]*openRecord)
	var keeps []time.Duration // in the order of their first record
	for _, p := range parts {
		for _, s := range j.sharesOf(p) {
			r := open[s.keep]
			if r != nil && r.room < s.size {
				a.close(c, r, at, s.keep)
				r = nil
			}
			if r == nil {
				if open[s.keep] == nil {
					keeps = append(keeps, s.keep)
				}
				r = &openRecord{room: journal.MaxRecord}
				open[s.keep] = r
			}
			r.take(&s, countedAt(p, now))
		}
	}
	for _, keep := range keeps {
		a.close(c, open[keep], at, keep)
	}
}

// take adds the entries of a share.
func (r *openRecord) take(s *share, minute wire.Minute) {
	p := s.part
	kept := journal.Part{ID: p.ID, Fingerprint: p.Fingerprint(), Minute: minute, Sender: p.sender(), Entries: make([]journal.Entry, len(s.of))}
	for i, at := range s.of {
		e := &p.Entries[at]
		kept.Entries[i] = journal.Entry{Counter: e.Counter, Delta: e.Delta}
		if s.paged[i] {
			r.rows = append(r.rows, journalRow{e.Counter, r.count, journal.EncodeRow(nil, &kept, &kept.Entries[i])})
		}
		r.count++
	}
	r.Parts, r.room = append(r.Parts, kept), r.room-s.size
}

// close adds a record to the commit.
func (a *Aggregator) close(c *store.Commit, r *openRecord, at time.Time, keep time.Duration) {
	// The random part keeps apart the records of one microsecond, also where a restored machine image would repeat random numbers.
	var random [8]byte
	_, _ = a.cfg.env.Read(random[:])
	record := store.JournalRecord{Key: store.NewJournalKey(at, binary.NativeEndian.Uint64(random[:])), ExpireAt: at.Add(keep)}
	record.Data = r.Encode(make([]byte, 0, journal.MaxRecord-r.room+64))
	c.Records = append(c.Records, record)
	for _, row := range r.rows {
		c.Rows = append(c.Rows, store.JournalRow{
			Counter: row.counter, Place: store.JournalPlace{Key: record.Key, Position: row.position}, ExpireAt: record.ExpireAt, Data: row.data,
		})
	}
}
