package reader

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const (
	// MaxWait is the longest time that TotalsAfter waits.
	MaxWait = 5 * time.Second

	// The pause before the next look-up of a receipt's completions is 1/pollShare of the time so far, from firstPoll
	// to lastPoll. So it delays the answer by an eleventh on average. A caller that waits for seconds
	// does not mind a quarter.
	pollShare           = 5
	firstPoll, lastPoll = 20 * time.Millisecond, 250 * time.Millisecond
)

// After is totals that contain the increments of a receipt, without those in DeadLetters.
type After struct {
	Totals      []Total
	DeadLetters []DeadLetterRef
}

// A DeadLetterRef is a dead letter with increments of a receipt that are not counted.
type DeadLetterRef struct {
	Key string
	// Discarded means that a person has discarded the letter. Otherwise it waits for one.
	Discarded bool
}

// TotalsAfter returns totals that contain every increment of the receipt. If some are not counted, it
// waits for up to wait (at most MaxWait) and then returns an error that matches
// countmill.ErrNotCountedYet. It looks up one marker for each message of the receipt, all of them in
// one call, every 20 to 250 ms. Increments in dead letters are not in the totals: DeadLetters names the
// letters.
//
// Other errors are those of TotalsSince, also its error with totals, countmill.ErrReceiptExpired for a receipt beyond the
// deduplication window, and countmill.ErrOtherDatabase.
func (r *Reader) TotalsAfter(ctx context.Context, counters []string, receipt wire.Receipt, wait time.Duration, minAsOf time.Time) (After, error) {
	for i, c := range counters {
		if err := countmill.CheckName(c); err != nil {
			return After{}, atIndex(err, i, len(counters))
		}
	}
	r.stats.awaited.Add(1)
	// Wait for the completion markers first, then read: a read that begins before may lack a commit.
	flagged, err := r.await(ctx, &receipt, min(max(wait, 0), MaxWait))
	if err != nil {
		return After{}, err
	}
	refs, err := r.deadLetterRefs(ctx, flagged)
	if err == nil && len(flagged) > 0 {
		// DeadLetterRefs go when their receipt has expired. The last check may be older than it looks, because a
		// machine may be suspended. So ask again, after the look-up.
		err = r.askStore(ctx)
	}
	if err == nil {
		err = r.checkExpired(&receipt)
	}
	if err != nil {
		return After{}, err
	}
	// The totals come last. All parts were settled before their completions were seen, and this read begins
	// after that, so it has all of their commits.
	totals, err := r.TotalsSince(ctx, counters, 0, minAsOf)
	return After{totals, refs}, err
}

// await waits until all completions of a receipt are there. It returns the completions that say that parts of
// their messages were set aside.
func (r *Reader) await(ctx context.Context, receipt *wire.Receipt, wait time.Duration) (flagged []wire.PartID, err error) {
	if err := r.checkReceipt(ctx, receipt); err != nil {
		return nil, err
	}
	began, left := time.Now(), receipt.Completions()
	for {
		if left, flagged, err = r.lookCompletions(ctx, left, flagged); err != nil || len(left) == 0 {
			return flagged, err
		}
		soFar := time.Since(began)
		rest := wait - soFar
		if rest <= 0 {
			return r.lastLook(ctx, receipt, left, flagged)
		}
		poll := min(max(soFar/pollShare, firstPoll), lastPoll)
		if err := pause(ctx, min(rest, poll-r.cfg.env.Jitter(poll/4))); err != nil {
			return nil, err
		}
	}
}

// lastLook looks for the completions of single parts, which have one only if the part is in a dead letter.
func (r *Reader) lastLook(ctx context.Context, receipt *wire.Receipt, left, flagged []wire.PartID) ([]wire.PartID, error) {
	var singles []wire.PartID
	for _, id := range left {
		if id.Class() == wire.AnonymousClass {
			singles = append(singles, id.Completion())
		}
	}
	missing := len(left)
	if len(singles) > 0 {
		still, more, err := r.lookCompletions(ctx, singles, flagged)
		if err != nil {
			return nil, err
		}
		missing -= len(singles) - len(still)
		flagged = more
	}
	if missing == 0 {
		return flagged, nil
	}
	return nil, fmt.Errorf("%w: %d of the %d messages of the receipt are not counted", countmill.ErrNotCountedYet, missing, receipt.Messages())
}

// checkReceipt refuses a receipt that no look-up can answer. A receipt whose completion was not seen before
// the window ended may have been counted, or refused: the markers are gone.
func (r *Reader) checkReceipt(ctx context.Context, receipt *wire.Receipt) error {
	var none wire.DatabaseTag
	if own := r.cfg.Database; own != none && receipt.Database != none && own != receipt.Database {
		return fmt.Errorf("%w: %x, this one is %x", countmill.ErrOtherDatabase, receipt.Database, own)
	}
	if err := r.checkStore(ctx); err != nil {
		return err
	}
	return r.checkExpired(receipt)
}

func (r *Reader) checkExpired(receipt *wire.Receipt) error {
	if before := r.checked.forgetBefore(); receipt.Time.Before(before) {
		return fmt.Errorf("%w: it is of %s, and increments from before %s are forgotten", countmill.ErrReceiptExpired,
			receipt.Time.Format(time.RFC3339), before.UTC().Format(time.RFC3339))
	}
	return nil
}

// lookCompletions looks up completions once. It returns the missing ones, and adds to flagged the completions
// that say that a part was set aside.
func (r *Reader) lookCompletions(ctx context.Context, completions, flagged []wire.PartID) (missing, _ []wire.PartID, err error) {
	found, err := r.markers(ctx, completions)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range completions {
		m, ok := found[id]
		switch {
		case !ok:
			missing = append(missing, id)
		case id.Class() == wire.CompletionClass && m.Fingerprint != store.CompletionCounted:
			flagged = append(flagged, id)
		}
	}
	return missing, flagged, nil
}

// markers returns those that exist, by their ids.
func (r *Reader) markers(ctx context.Context, ids []wire.PartID) (map[wire.PartID]store.Marker, error) {
	found := make(map[wire.PartID]store.Marker, len(ids))
	for chunk := range slices.Chunk(ids, store.LookupKeys) {
		err := r.call(ctx, len(chunk), "looking up a receipt", func(ctx context.Context) error {
			r.stats.completionLookups.Add(1)
			r.stats.completions.Add(int64(len(chunk)))
			markers, err := r.store.Applied(ctx, chunk)
			for _, m := range markers {
				found[m.ID] = m
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// maxResolved bounds the look-ups of markers that show whether parts in dead letters were counted
// since. Beyond it they count as not counted.
const maxResolved = 10_000

// deadLetterRefs returns the dead letters that still have parts of the messages with these completions. A part that
// was counted since, because its letter was replayed or its message came again, has a marker.
func (r *Reader) deadLetterRefs(ctx context.Context, completions []wire.PartID) ([]DeadLetterRef, error) {
	if len(completions) == 0 {
		return nil, nil
	}
	var all []store.DeadLetterRef
	err := r.call(ctx, len(completions), "looking up dead letters of a receipt", func(ctx context.Context) (err error) {
		all, err = r.store.DeadLetterRefs(ctx, completions)
		return err
	})
	if err != nil {
		return nil, err
	}
	var ids []wire.PartID
	for i := range all {
		ids = append(ids, wire.DeadLetterID(all[i].Key))
		for j := range all[i].Parts {
			ids = append(ids, all[i].Parts[j].Markers()...)
		}
	}
	found, err := r.markers(ctx, ids[:min(len(ids), maxResolved)])
	if err != nil {
		return nil, err
	}
	var refs []DeadLetterRef
	for i := range all {
		a := &all[i]
		if counted(a, found) || slices.ContainsFunc(refs, func(s DeadLetterRef) bool { return s.Key == a.Key }) {
			continue
		}
		decision := found[wire.DeadLetterID(a.Key)].Fingerprint
		// A discarded letter is not counted either.
		refs = append(refs, DeadLetterRef{a.Key, store.Decision(decision) == store.DecisionDiscarded})
	}
	slices.SortFunc(refs, func(a, b DeadLetterRef) int { return strings.Compare(a.Key, b.Key) })
	return refs, nil
}

// counted reports whether all parts were counted after they were set aside.
func counted(a *store.DeadLetterRef, found map[wire.PartID]store.Marker) bool {
	for i := range a.Parts {
		if !a.Parts[i].Counted(found) {
			return false
		}
	}
	return len(a.Parts) > 0
}
