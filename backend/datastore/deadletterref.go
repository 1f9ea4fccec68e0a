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

// refKey is the key of a dead-letter reference. DeadLetterRefs are of the kind of markers, because the same TTL policy
// removes them.
func refKey(a *store.DeadLetterRef) ref { return ref{kindApplied, a.Completion.String() + ":" + a.Key} }

func (s *Store) refMutation(a *store.DeadLetterRef) *pb.Mutation {
	return s.replace(refKey(a), map[string]*pb.Value{
		"parts": blob(store.AppendDeadLetterParts(nil, a.Parts)), "expire_at": instant(a.ExpireAt),
	})
}

// DeadLetterRefs makes a query for each completion marker. Few messages have any, and their completion markers say so.
func (s *Store) DeadLetterRefs(ctx context.Context, completions []wire.PartID) ([]store.DeadLetterRef, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	var all []store.DeadLetterRef
	for _, completion := range completions {
		of := completion.String()
		_, err := s.query(ctx, nil, span{kind: kindApplied, from: of + ":", to: of + ";"}, math.MaxInt32, func(e *pb.Entity) error {
			a, err := deadLetterRefOf(e)
			all = append(all, a)
			return err
		})
		if err != nil {
			return nil, s.explain("list the dead-letter references of a message", err)
		}
	}
	return all, s.confirm(ctx, "list the dead-letter references of a message")
}

func deadLetterRefOf(e *pb.Entity) (a store.DeadLetterRef, err error) {
	name := refOf(e.GetKey()).name
	completion, letter, _ := strings.Cut(name, ":")
	id, err := hex.DecodeString(completion)
	if err != nil || len(id) != len(a.Completion) {
		return a, fmt.Errorf("entity %s %q: its key is not that of a dead-letter reference", kindApplied, name)
	}
	f := fields{entity: e}
	a = store.DeadLetterRef{Completion: wire.PartID(id), Key: letter, ExpireAt: f.instant("expire_at")}
	parts := f.blob("parts")
	if f.err != nil {
		return a, f.err
	}
	a.Parts, err = store.ParseDeadLetterParts(parts)
	return a, err
}
