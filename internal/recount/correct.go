package recount

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// The details of findings that a repair has not fixed.
const (
	otherFirst = "another recount has corrected it first: recount again"
	unclear    = "the outcome is unknown: recount again"
	tooOld     = "it was read over an hour ago: recount again"
	recorded   = "it has shards that its record did not name: recount again"
	inPart     = "it was corrected in part: recount again"
	outdated   = "the rules were changed meanwhile: recount again"
)

// repair corrects the findings: each total, and each quarter hour of a series, in a commit of its own.
func (x *run) repair(ctx context.Context) error {
	found := x.result.Findings
	for i := 0; i < len(found); {
		n := 1
		for i+n < len(found) && sameUnit(&found[i], &found[i+n]) {
			n++
		}
		detail, err := x.fix(ctx, found[i:i+n])
		if err != nil {
			return fmt.Errorf("%w: correcting %q, others may be corrected: %w", countmill.ErrOutcomeUnknown, found[i].Name, err)
		}
		for k := range found[i : i+n] {
			found[i+k].Fixed, found[i+k].Detail = detail == "", detail
		}
		i += n
	}
	return nil
}

// sameUnit reports whether two findings are corrected together: buckets of one quarter hour, whose minutes may be
// joined between two recounts.
func sameUnit(a, b *Finding) bool {
	return a.Name == b.Name && a.Kind == WrongBucket && b.Kind == WrongBucket && store.QuarterOf(a.Minute) == store.QuarterOf(b.Minute)
}

// fix returns why it has not corrected a sum; empty if it has.
func (x *run) fix(ctx context.Context, unit []Finding) (detail string, err error) {
	if unit[0].Kind != WrongBucket {
		if more, err := x.record(ctx, unit[0].Name); more || err != nil {
			return recorded, err
		}
	}
	id, err := x.correctionID(ctx, &unit[0])
	if err != nil {
		return "", err
	}
	fold := x.cfg.env.Uint64()
	for range 5 {
		detail, err := x.attempt(ctx, unit, id, fold)
		if !errors.Is(err, errAgain) {
			return detail, err
		}
	}
	return unclear, nil
}

// record makes the record of a counter name all its shards, so that they are in the total. It reports whether the counter has more
// than the record of the view named: the total of the view is wrong for that, or old.
func (x *run) record(ctx context.Context, name string) (more bool, err error) {
	page, err := timed(ctx, x.Recounter, func(ctx context.Context) (store.ShardPage, error) { return x.store.ShardsOf(ctx, name) })
	if err != nil {
		return false, err
	}
	shards := 1
	for i := range page.Shards {
		if s := &page.Shards[i]; s.Number < countmill.MaxShards {
			shards = max(shards, s.Number+1)
		}
	}
	more = shards > x.shards[name]
	if page.Records[name] >= shards {
		return more, nil
	}
	_, err = timed(ctx, x.Recounter, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, x.store.Grow(ctx, []store.Growth{{Counter: name, Shards: shards}})
	})
	return more, err
}

// correctionRows is the name under which the corrections of a sum have rows. No counter has it.
func correctionRows(f *Finding) string {
	id := wire.RecountID(f.Name, unitOf(f), "")
	return countmill.GroupMark + "corrections:" + hex.EncodeToString(id[:])
}

func unitOf(f *Finding) wire.Minute { return store.QuarterOf(f.Minute) }

// correctionID is the id of the correction that follows the last one in the view. Whoever corrects the same sum
// after the same correction has the same id, and one of them comes first.
func (x *run) correctionID(ctx context.Context, f *Finding) (wire.PartID, error) {
	page, err := timed(ctx, x.Recounter, func(ctx context.Context) (store.JournalPage, error) {
		return x.view.JournalRows(ctx, correctionRows(f), store.JournalQuery{Limit: 1, Last: true})
	})
	if err != nil {
		return wire.PartID{}, err
	}
	last := ""
	if len(page.Rows) > 0 {
		last = page.Rows[0].Place.String()
	}
	return wire.RecountID(f.Name, unitOf(f), last), nil
}

var errAgain = errors.New("repeat the correction")

// maxViewAge is how old the view of a correction may be. Markers of corrections stay for longer, so a
// correction that another recount has made since the view is noticed.
const maxViewAge = time.Hour

// attempt commits a correction. It answers errAgain if it was maybe applied, or not at all, and may be repeated.
func (x *run) attempt(ctx context.Context, unit []Finding, id wire.PartID, fold uint64) (detail string, err error) {
	checked, err := timed(ctx, x.Recounter, x.store.Check)
	if err != nil {
		return "", err
	}
	now := x.now(&checked)
	switch {
	case now.Sub(x.at) > maxViewAge:
		return tooOld, nil
	case !x.inForce(unit[0].Name, checked.Settings.Rules):
		return outdated, nil
	}
	at, done := x.store.JournalMoment(now)
	defer done()
	c := x.correction(unit, id, fold, &checked.Settings, now, at)
	// The commit has nothing but the correction, and the marker by which another one is noticed.
	_, err = timed(ctx, x.Recounter, func(ctx context.Context) (store.CommitResult, error) { return x.store.Fold(ctx, c) })
	switch {
	case err == nil:
		return halfway(unit), nil
	case errors.Is(err, store.ErrMarkerExists):
		detail, err := x.whose(ctx, id, fold)
		return cmp.Or(detail, halfway(unit)), err
	case errors.Is(err, store.ErrRefused), errors.Is(err, store.ErrDeployment):
		return "", err
	}
	return "", cmp.Or(ctx.Err(), errAgain)
}

// difference is the amount that corrects a sum. A sum that differs by more than fits 64 bits is corrected by as much as fits, and by the
// rest next time.
func (f *Finding) difference() (delta int64, part bool) {
	exact := f.Counted.Sub(f.Stored)
	switch delta, fits := exact.Int64(); {
	case fits:
		return delta, false
	case exact.Hi < 0:
		return math.MinInt64, true
	}
	return math.MaxInt64, true
}

// halfway is the detail of a unit that a commit has corrected; empty if it has so wholly.
func halfway(unit []Finding) string {
	for i := range unit {
		if _, part := unit[i].difference(); part {
			return inPart
		}
	}
	return ""
}

// inForce reports whether the journal's rules of a counter are still those of the view. After a change an
// opening balance takes the stored sum as right, and a correction that came later would be taken for damage.
func (x *run) inForce(name string, rules *store.Rules) bool {
	if rules == nil || rules.JournalFrom != x.rules.JournalFrom {
		return false
	}
	newer := func(r store.Rule) bool { return r.Version > x.set.Version && r.Matches(name) }
	return rules.JournalOf(name) != nil && !slices.ContainsFunc(rules.Journal, newer)
}

// whose reports whose correction the marker is.
func (x *run) whose(ctx context.Context, id wire.PartID, fold uint64) (detail string, err error) {
	found, err := timed(ctx, x.Recounter, func(ctx context.Context) ([]store.Marker, error) { return x.store.Applied(ctx, []wire.PartID{id}) })
	if err != nil {
		return "", err
	}
	if len(found) == 1 && found[0].Fold == fold {
		return "", nil
	}
	return otherFirst, nil
}

func (x *run) now(checked *store.Checked) time.Time {
	if checked.At.IsZero() {
		return x.cfg.env.Now()
	}
	return checked.At
}

// correction makes the commit: it changes nothing but the sums that were found wrong.
func (x *run) correction(unit []Finding, id wire.PartID, fold uint64, set *store.Settings, now, at time.Time) *store.Commit {
	f := &unit[0]
	c := &store.Commit{
		Correction: true, Rules: set.Version, Restores: set.Restores, Archive: x.store.Limits().Ring.Archive(now),
		Markers: []store.Marker{{
			ID: id, Fingerprint: wire.Fingerprint(binary.BigEndian.Uint64(id[8:])), Fold: fold, At: now, ExpireAt: set.Expiry(now, now),
		}},
	}
	r := &journal.Record{Kind: journal.CorrectionKind}
	total := int64(0)
	for i := range unit {
		u := &unit[i]
		delta, _ := u.difference()
		r.Parts = append(r.Parts, journal.Part{ID: id, Minute: u.Minute, Entries: []journal.Entry{{Counter: u.Name, Delta: delta}}})
		if u.Kind != WrongBucket {
			total = delta
			continue
		}
		c.Buckets = append(c.Buckets, store.BucketDelta{Minute: u.Minute, Delta: delta})
	}
	c.Adds = []store.ShardDelta{store.NewShardDelta(f.Name, 0, total)}
	x.addRecord(c, r, at, x.keep(set), correctionRows(f), []byte{1})
	return c
}

// keep is how long a record of a recount stays: not shorter than its marker, and the longest of all rules.
func (x *run) keep(set *store.Settings) time.Duration {
	keep := set.Window + store.MarkerSlack + maxViewAge
	for i := range x.rules.Journal {
		keep = max(keep, x.rules.Journal[i].Keep.Entries)
	}
	return keep
}

// addRecord adds a record to a commit, with one row.
func (x *run) addRecord(c *store.Commit, r *journal.Record, at time.Time, keep time.Duration, rows string, row []byte) {
	record := store.JournalRecord{Key: store.NewJournalKey(at, x.cfg.env.Uint64()), ExpireAt: at.Add(keep)}
	record.Data = r.Encode(nil)
	c.Records = append(c.Records, record)
	c.Rows = append(c.Rows, store.JournalRow{Counter: rows, Place: record.Place(), ExpireAt: record.ExpireAt, Data: slices.Clone(row)})
}
