package datastore

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// asideRef is the key of an aside. Asides are of the kind of markers, because the same TTL policy
// removes them.
func asideRef(a *store.Aside) ref { return ref{kindApplied, a.Tail.String() + ":" + a.Letter} }

func (s *Store) aside(a *store.Aside) *pb.Mutation {
	return s.replace(asideRef(a), map[string]*pb.Value{
		"parts": blob(store.AppendAsideParts(nil, a.Parts)), "expire_at": instant(a.ExpireAt),
	})
}

// Asides makes a query for each tail. Few messages have any, and their tails say so.
func (s *Store) Asides(ctx context.Context, tails []wire.PartID) ([]store.Aside, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	var all []store.Aside
	for _, tail := range tails {
		of := tail.String()
		_, err := s.query(ctx, nil, span{kind: kindApplied, from: of + ":", to: of + ";"}, math.MaxInt32, func(e *pb.Entity) error {
			a, err := asideOf(e)
			all = append(all, a)
			return err
		})
		if err != nil {
			return nil, s.explain("list the asides of a message", err)
		}
	}
	return all, s.confirm(ctx, "list the asides of a message")
}

func asideOf(e *pb.Entity) (a store.Aside, err error) {
	name := refOf(e.GetKey()).name
	tail, letter, _ := strings.Cut(name, ":")
	id, err := hex.DecodeString(tail)
	if err != nil || len(id) != len(a.Tail) {
		return a, fmt.Errorf("entity %s %q: its key is not that of an aside", kindApplied, name)
	}
	f := fields{entity: e}
	a = store.Aside{Tail: wire.PartID(id), Letter: letter, ExpireAt: f.instant("expire_at")}
	parts := f.blob("parts")
	if f.err != nil {
		return a, f.err
	}
	a.Parts, err = store.ParseAsideParts(parts)
	return a, err
}
