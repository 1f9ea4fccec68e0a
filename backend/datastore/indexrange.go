package datastore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
)

// maxSwapped is the most ranges of each side of SwapRanges.
const maxSwapped = 100

// rangeRef returns the key of a range. All ranges of an index have one prefix.
func rangeRef(index int64, id int) ref {
	return ref{kindIndexRange, indexPrefix(index) + strconv.Itoa(id)}
}

func refOfRange(p *store.IndexRange) ref { return rangeRef(p.Index, p.ID) }

// indexPrefix begins the names of an index's entities. No other index ever has its number.
func indexPrefix(index int64) string { return strconv.FormatInt(index, 10) + ":" }

// prefixed is the range of a kind's names that begin with prefix, which ends with a colon.
func prefixed(kind, prefix string) span {
	return span{kind: kind, from: prefix, to: successor(prefix)}
}

func rangeProperties(p *store.IndexRange) map[string]*pb.Value {
	return map[string]*pb.Value{
		"from": integer(int64(p.From)), "to": integer(int64(p.To)), "retired": boolean(p.Retired),
		"worker": text(p.Worker), "until": instant(p.Until), "round": integer(p.Round), "read": instant(p.Read),
		"shards": integer(p.Shards), "remainders": integer(p.Remainders), "corrected": integer(p.Corrected),
	}
}

func rangeOf(e *pb.Entity) (p store.IndexRange, err error) {
	f := fields{entity: e}
	index, id, ok := strings.Cut(refOf(e.GetKey()).name, ":")
	number, err := strconv.ParseInt(index, 10, 64)
	if p.Index = number; ok && err == nil {
		p.ID, err = strconv.Atoi(id)
	}
	if !ok || err != nil {
		f.wrong("__key__", "of a range")
	}
	p.From, p.To, p.Retired = uint64(f.integer("from")), uint64(f.integer("to")), f.boolean("retired")
	p.Worker, p.Until, p.Round, p.Read = f.text("worker"), f.instant("until"), f.integer("round"), f.instant("read")
	p.Shards, p.Remainders, p.Corrected = f.integer("shards"), f.integer("remainders"), f.integer("corrected")
	return p, f.err
}

// Ranges queries the ranges of an index, at one moment.
func (s *Store) Ranges(ctx context.Context, index int64) (ranges []store.IndexRange, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	_, err = s.query(ctx, nil, prefixed(kindIndexRange, indexPrefix(index)), math.MaxInt32, func(e *pb.Entity) error {
		p, err := rangeOf(e)
		ranges = append(ranges, p)
		return err
	})
	if err != nil {
		return nil, s.explain("list the ranges of an index", err)
	}
	return ranges, s.confirm(ctx, "list the ranges of an index")
}

// isStored returns store.ErrChanged unless e is the range. A transaction that has read e fails if another one
// changes it: so until it commits the range is its worker's.
func isStored(p *store.IndexRange, e *pb.Entity) error {
	if e == nil {
		return fmt.Errorf("range %d is gone: %w", p.ID, store.ErrChanged)
	}
	found, err := rangeOf(e)
	if err == nil && !found.Same(p) {
		err = fmt.Errorf("range %d: %w", p.ID, store.ErrChanged)
	}
	return err
}

// SwapRanges replaces ranges in one transaction that reads them all. Of two workers that take one
// range, the second one finds the first one's range, or its commit fails. It touches neither shards nor
// groups, so folds, growths and sweeps beside it do not matter. If its answer is lost, the ranges are the old
// or the new ones.
func (s *Store) SwapRanges(ctx context.Context, old, next []store.IndexRange) error {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if len(old) > maxSwapped || len(next) > maxSwapped {
		return fmt.Errorf("%w: %d ranges for %d (limit: %d)", store.ErrRefused, len(next), len(old), maxSwapped)
	}
	refs := make([]ref, 0, 1+len(old)+len(next))
	if len(old) == 0 {
		refs = append(refs, metaRef)
	}
	for _, ranges := range [][]store.IndexRange{old, next} {
		for i := range ranges {
			refs = append(refs, refOfRange(&ranges[i]))
		}
	}
	err = s.readModifyWrite(ctx, refs, func(found map[ref]*pb.Entity, _ time.Time) ([]*pb.Mutation, error) {
		return s.swap(found, old, next)
	})
	switch {
	case errors.Is(err, store.ErrMarkerExists): // another process has inserted the range since
		return fmt.Errorf("a new range exists: %w", store.ErrChanged)
	case err != nil:
		return err
	}
	return s.confirm(ctx, "change the ranges of an index")
}

func (s *Store) swap(found map[ref]*pb.Entity, old, next []store.IndexRange) (mutations []*pb.Mutation, err error) {
	if len(old) == 0 && len(next) > 0 {
		switch m, err := s.metaAmong(found); {
		case err != nil:
			return nil, err
		case m.settings.Rules.Numbered(next[0].Index) == nil:
			return nil, fmt.Errorf("index %d is gone: %w", next[0].Index, store.ErrNoIndex)
		}
	}
	for i := range old {
		r := refOfRange(&old[i])
		if err := isStored(&old[i], found[r]); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(next, func(p store.IndexRange) bool { return refOfRange(&p) == r }) {
			mutations = append(mutations, s.remove(r))
		}
	}
	for i := range next {
		r := refOfRange(&next[i])
		if slices.ContainsFunc(old, func(p store.IndexRange) bool { return refOfRange(&p) == r }) {
			mutations = append(mutations, s.replace(r, rangeProperties(&next[i])))
			continue
		}
		if found[r] != nil {
			return nil, fmt.Errorf("range %d exists: %w", next[i].ID, store.ErrChanged)
		}
		mutations = append(mutations, s.insert(r, rangeProperties(&next[i])))
	}
	return mutations, nil
}
