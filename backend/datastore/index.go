package datastore

import (
	"context"
	"errors"

	"github.com/countmill/countmill/store"
)

var errNoIndexes = errors.New("indexes are not there yet")

func (s *Store) Pieces(context.Context, int64) ([]store.Piece, error)           { return nil, errNoIndexes }
func (s *Store) SwapPieces(context.Context, []store.Piece, []store.Piece) error { return errNoIndexes }
func (s *Store) Ungrouped(context.Context, *store.Index, *store.Piece, string, int) (store.UngroupedPage, error) {
	return store.UngroupedPage{}, errNoIndexes
}
func (s *Store) SetRests(context.Context, *store.Piece, []store.GroupRest) error { return errNoIndexes }
func (s *Store) RestsOf(context.Context, *store.Piece, string, int) ([]store.GroupRest, error) {
	return nil, errNoIndexes
}
func (s *Store) DropGrouped(context.Context, *store.Index, *store.Piece, string, int) (string, error) {
	return "", errNoIndexes
}
func (s *Store) DropGroups(context.Context, *store.Index, int) (int, error) { return 0, errNoIndexes }
