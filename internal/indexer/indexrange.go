package indexer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// A holding is a range that the worker has leased.
type holding struct {
	x      *Indexer
	w      *work
	index  *store.Index
	p      store.IndexRange
	place  uint64    // of the last shard that was read
	placed bool      // there is one
	begun  time.Time // by the machine
	paced  int       // shards
}

// read sums the parts of counts that no group has, and makes them the remainders of the range.
//
// Since Index.Since these parts do not move. So the shards may be read one after another, each at a
// moment of its own, and two workers that read the same range get the same.
func (h *holding) read(ctx context.Context) error {
	sums := make(map[string]int128.Int)
	var read time.Time
	shards, from := int64(0), ""
	for {
		page, err := h.page(ctx, from)
		if err != nil {
			return err
		}
		if read.IsZero() {
			if read = page.At; !read.After(h.index.Since) {
				return errEarly
			}
		}
		for i := range page.Remainders {
			h.add(sums, &page.Remainders[i])
		}
		shards += int64(page.Shards)
		if from = page.Next; from == "" {
			break
		}
		if len(sums) > h.x.cfg.MostGroups && h.placed && h.place < h.p.To && h.p.Read.IsZero() {
			if done, err := h.split(ctx); done || err != nil {
				return err
			}
		}
	}
	// Folds after the end of the index do not go by it, so pages with them show wrong remainders. And a range that is read after
	// the end would pass for one whose grouped parts were removed.
	if now, err := h.x.look(ctx); err != nil {
		return err
	} else if x := now.rules.Numbered(h.index.Number); x == nil || !x.InForce() {
		return store.ErrChanged
	}
	changed, err := h.compare(ctx, sums)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(changed, h.x.store.Limits().Remainders) {
		if err := h.extend(ctx); err != nil {
			return err
		}
		if err := h.set(ctx, some); err != nil {
			return err
		}
	}
	again := h.p.Read.After(h.index.Since)
	done := h.p
	done.Worker, done.Until, done.Read, done.Shards, done.Remainders = "", time.Time{}, read, shards, int64(len(sums))
	if again && len(changed) > 0 {
		done.Corrected += int64(len(changed))
		h.x.corrected.Add(int64(len(changed)))
		h.x.cfg.Logger.LogAttrs(ctx, slog.LevelError, "increments were folded without a complete index: its groups were corrected",
			slog.String("index", h.index.Name), slog.Int("groups", len(changed)))
	}
	return h.finish(ctx, done)
}

// add adds the part of a shard to the sum of its group.
func (h *holding) add(sums map[string]int128.Int, u *store.Ungrouped) {
	group, ok := h.index.GroupOf(u.Counter)
	if !ok {
		return
	}
	sum := sums[group].Add(u.Remainder)
	if sums[group] = sum; sum == (int128.Int{}) {
		delete(sums, group)
	}
}

func (h *holding) page(ctx context.Context, from string) (store.UngroupedPage, error) {
	if err := h.extend(ctx); err != nil {
		return store.UngroupedPage{}, err
	}
	call, cancel := context.WithTimeout(ctx, h.x.cfg.CallTimeout)
	defer cancel()
	page, err := h.x.store.Ungrouped(call, h.index, &h.p, from, h.x.cfg.Page)
	if err != nil {
		return page, err
	}
	h.x.shards.Add(int64(page.Shards))
	if page.Shards > 0 {
		h.place, h.placed = page.Place, true
	}
	return page, h.pace(ctx, page.Shards)
}

// split splits the range behind its last read shard, unless there are too many ranges.
func (h *holding) split(ctx context.Context) (done bool, err error) {
	ranges, err := h.x.allRanges(ctx, h.index)
	if err != nil || len(ranges) >= store.MaxRanges {
		return false, err
	}
	return true, h.x.split(ctx, ranges, h.p, h.place)
}

// pace waits so that no more than Config.Rate shards are read in a second.
func (h *holding) pace(ctx context.Context, shards int) error {
	if h.begun.IsZero() {
		h.begun = time.Now()
	}
	if h.x.cfg.Rate <= 0 {
		return ctx.Err()
	}
	h.paced += shards
	clock.Sleep(ctx, time.Until(h.begun.Add(time.Duration(h.paced)*time.Second/time.Duration(h.x.cfg.Rate))))
	return ctx.Err()
}

// extend makes the lease longer when half of it is over. It fails with store.ErrChanged if another
// worker has the range.
func (h *holding) extend(ctx context.Context) error {
	now := h.w.at()
	if h.p.Until.Sub(now) > h.x.cfg.Lease/2 {
		return nil
	}
	longer := h.p
	longer.Until = now.Add(h.x.cfg.Lease)
	if err := h.x.swap(ctx, []store.IndexRange{h.p}, []store.IndexRange{longer}); err != nil {
		return err
	}
	h.p = longer
	return nil
}

// compare returns the remainders that differ from those of the range, by group.
func (h *holding) compare(ctx context.Context, sums map[string]int128.Int) (changed []store.GroupRemainder, err error) {
	left := maps.Clone(sums)
	for after := ""; ; {
		have, err := h.remaindersAfter(ctx, after)
		if err != nil {
			return nil, err
		}
		for _, r := range have {
			if remainder := sums[r.Group]; remainder != r.Remainder {
				changed = append(changed, store.GroupRemainder{Group: r.Group, Remainder: remainder})
			}
			delete(left, r.Group)
		}
		if len(have) < remaindersPage {
			break
		}
		after = have[len(have)-1].Group
	}
	for group, remainder := range left {
		changed = append(changed, store.GroupRemainder{Group: group, Remainder: remainder})
	}
	slices.SortFunc(changed, func(a, b store.GroupRemainder) int { return strings.Compare(a.Group, b.Group) })
	return changed, nil
}

// remaindersPage is the most remainders that one call reads.
const remaindersPage = 1000

func (h *holding) remaindersAfter(ctx context.Context, after string) ([]store.GroupRemainder, error) {
	if err := h.extend(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.x.cfg.CallTimeout)
	defer cancel()
	return h.x.store.RemaindersOf(ctx, &h.p, after, remaindersPage)
}

func (h *holding) set(ctx context.Context, remainders []store.GroupRemainder) error {
	ctx, cancel := context.WithTimeout(ctx, h.x.cfg.CallTimeout)
	defer cancel()
	if err := h.x.store.SetRemainders(ctx, &h.p, remainders); err != nil {
		return err
	}
	h.x.remainders.Add(int64(len(remainders)))
	return nil
}

// finish gives the range back, read.
func (h *holding) finish(ctx context.Context, done store.IndexRange) error {
	if err := h.x.swap(ctx, []store.IndexRange{h.p}, []store.IndexRange{done}); err != nil {
		return err
	}
	h.x.ranges.Add(1)
	return nil
}

// drop removes the grouped parts of the range's shards.
func (h *holding) drop(ctx context.Context) error {
	for from := ""; ; {
		next, err := h.dropPage(ctx, from)
		if err != nil {
			return err
		}
		if from = next; from == "" {
			break
		}
		if err := h.pace(ctx, h.x.cfg.Page); err != nil {
			return err
		}
	}
	done := h.p
	done.Worker, done.Until, done.Read = "", time.Time{}, h.w.at()
	return h.finish(ctx, done)
}

func (h *holding) dropPage(ctx context.Context, from string) (string, error) {
	if err := h.extend(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, h.x.cfg.CallTimeout)
	defer cancel()
	return h.x.store.DropGrouped(ctx, h.index, &h.p, from, h.x.cfg.Page)
}
