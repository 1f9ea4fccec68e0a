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

// maxSwapped is the most pieces of each side of SwapPieces.
const maxSwapped = 100

// pieceRef returns the key of a piece. All pieces of an index have one prefix.
func pieceRef(index int64, id int) ref {
	return ref{kindPiece, indexPrefix(index) + strconv.Itoa(id)}
}

func refOfPiece(p *store.Piece) ref { return pieceRef(p.Index, p.ID) }

// indexPrefix begins the names of an index's entities. No other index ever has its number.
func indexPrefix(index int64) string { return strconv.FormatInt(index, 10) + ":" }

// prefixed is the range of a kind's names that begin with prefix, which ends with a colon.
func prefixed(kind, prefix string) span {
	return span{kind: kind, from: prefix, to: successor(prefix)}
}

func pieceProperties(p *store.Piece) map[string]*pb.Value {
	return map[string]*pb.Value{
		"from": integer(int64(p.From)), "to": integer(int64(p.To)), "retired": boolean(p.Retired),
		"worker": text(p.Worker), "until": instant(p.Until), "round": integer(p.Round), "read": instant(p.Read),
		"shards": integer(p.Shards), "rests": integer(p.Rests), "corrected": integer(p.Corrected),
	}
}

func pieceOf(e *pb.Entity) (p store.Piece, err error) {
	f := fields{entity: e}
	index, id, ok := strings.Cut(refOf(e.GetKey()).name, ":")
	number, err := strconv.ParseInt(index, 10, 64)
	if p.Index = number; ok && err == nil {
		p.ID, err = strconv.Atoi(id)
	}
	if !ok || err != nil {
		f.wrong("__key__", "of a piece")
	}
	p.From, p.To, p.Retired = uint64(f.integer("from")), uint64(f.integer("to")), f.boolean("retired")
	p.Worker, p.Until, p.Round, p.Read = f.text("worker"), f.instant("until"), f.integer("round"), f.instant("read")
	p.Shards, p.Rests, p.Corrected = f.integer("shards"), f.integer("rests"), f.integer("corrected")
	return p, f.err
}

// Pieces queries the pieces of an index, at one moment.
func (s *Store) Pieces(ctx context.Context, index int64) (pieces []store.Piece, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	_, err = s.query(ctx, nil, prefixed(kindPiece, indexPrefix(index)), math.MaxInt32, func(e *pb.Entity) error {
		p, err := pieceOf(e)
		pieces = append(pieces, p)
		return err
	})
	if err != nil {
		return nil, s.explain("list the pieces of an index", err)
	}
	return pieces, s.confirm(ctx, "list the pieces of an index")
}

// isStored returns store.ErrChanged unless e is the piece. A transaction that has read e fails if another one
// changes it: so until it commits the piece is its worker's.
func isStored(p *store.Piece, e *pb.Entity) error {
	if e == nil {
		return fmt.Errorf("piece %d is gone: %w", p.ID, store.ErrChanged)
	}
	found, err := pieceOf(e)
	if err == nil && !found.Same(p) {
		err = fmt.Errorf("piece %d: %w", p.ID, store.ErrChanged)
	}
	return err
}

// SwapPieces replaces pieces in one transaction that reads them all. Of two workers that take one
// piece, the second one finds the first one's piece, or its commit fails. It touches neither shards nor
// groups, so folds, growths and sweeps beside it do not matter. If its answer is lost, the pieces are the old
// or the new ones.
func (s *Store) SwapPieces(ctx context.Context, old, next []store.Piece) error {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if len(old) > maxSwapped || len(next) > maxSwapped {
		return fmt.Errorf("%w: %d pieces for %d (limit: %d)", store.ErrRefused, len(next), len(old), maxSwapped)
	}
	refs := make([]ref, 0, 1+len(old)+len(next))
	if len(old) == 0 {
		refs = append(refs, metaRef)
	}
	for _, pieces := range [][]store.Piece{old, next} {
		for i := range pieces {
			refs = append(refs, refOfPiece(&pieces[i]))
		}
	}
	err = s.readModifyWrite(ctx, refs, func(found map[ref]*pb.Entity, _ time.Time) ([]*pb.Mutation, error) {
		return s.swap(found, old, next)
	})
	switch {
	case errors.Is(err, store.ErrMarkerExists): // another process has inserted the piece since
		return fmt.Errorf("a new piece exists: %w", store.ErrChanged)
	case err != nil:
		return err
	}
	return s.confirm(ctx, "change the pieces of an index")
}

func (s *Store) swap(found map[ref]*pb.Entity, old, next []store.Piece) (mutations []*pb.Mutation, err error) {
	if len(old) == 0 && len(next) > 0 {
		switch m, err := s.metaAmong(found); {
		case err != nil:
			return nil, err
		case m.settings.Rules.Numbered(next[0].Index) == nil:
			return nil, fmt.Errorf("index %d is gone: %w", next[0].Index, store.ErrNoIndex)
		}
	}
	for i := range old {
		r := refOfPiece(&old[i])
		if err := isStored(&old[i], found[r]); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(next, func(p store.Piece) bool { return refOfPiece(&p) == r }) {
			mutations = append(mutations, s.remove(r))
		}
	}
	for i := range next {
		r := refOfPiece(&next[i])
		if slices.ContainsFunc(old, func(p store.Piece) bool { return refOfPiece(&p) == r }) {
			mutations = append(mutations, s.replace(r, pieceProperties(&next[i])))
			continue
		}
		if found[r] != nil {
			return nil, fmt.Errorf("piece %d exists: %w", next[i].ID, store.ErrChanged)
		}
		mutations = append(mutations, s.insert(r, pieceProperties(&next[i])))
	}
	return mutations, nil
}
