package datastore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill/store/engine"
)

// View opens a view. It holds no resources: the service keeps the past for an hour.
func (d *database) View() engine.View { return &view{d: d} }

type view struct {
	d      *database
	when   *timestamppb.Timestamp // nil before the first call
	at     time.Time
	closed atomic.Bool
}

// At returns the moment.
func (v *view) At() time.Time { return v.at }

// Close ends the view.
func (v *view) Close() { v.closed.Store(true) }

func (v *view) call(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if v.closed.Load() {
		return nil, nil, errors.New("the view is closed")
	}
	if v.when != nil && time.Since(v.at)+time.Duration(v.d.ahead.Load()) > past { // an emulator would answer
		return nil, nil, fmt.Errorf("%w: %s", engine.ErrExpired, v.at)
	}
	return v.d.call(ctx)
}

// pin sets the moment to the time of the first answer, which is strong.
func (v *view) pin(when *timestamppb.Timestamp) error {
	if v.when != nil {
		return nil
	}
	err := v.d.timed(when)
	if err == nil {
		v.when, v.at = when, when.AsTime()
	}
	return err
}

// explain says of a refused read at a moment that the service has forgotten the moment.
func (v *view) explain(doing string, err error) error {
	err = v.d.explain(doing, err, false)
	switch status.Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		if v.when != nil {
			err = fmt.Errorf("%w: %v", engine.ErrExpired, err)
		}
	}
	return err
}

// Get makes one call, and more for keys that the server defers. One without keys looks for an entity that does not exist.
func (v *view) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	if len(keys) == 0 && v.when != nil {
		return nil, nil
	}
	ctx, cancel, err := v.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	rows, when, err := v.d.lookup(ctx, at(v.when), keys, fields)
	if err != nil {
		return nil, v.explain("look up", err)
	}
	if err := v.pin(when); err != nil {
		return nil, err
	}
	return rows, v.d.confirm(ctx, "look up")
}

// at makes options for reading the database at a moment; with nil, as it is now.
func at(t *timestamppb.Timestamp) *pb.ReadOptions {
	if t == nil {
		return nil
	}
	return &pb.ReadOptions{ConsistencyType: &pb.ReadOptions_ReadTime{ReadTime: t}}
}

// maxKeys is the service's limit for a look-up.
const maxKeys = 1000

// lookup reads some fields of rows in the order of keys, all at the moment that it returns. It asks again for keys that the server defers.
func (d *database) lookup(ctx context.Context, options *pb.ReadOptions, keys []engine.Key, fields []engine.FieldID) (rows []engine.Row, when *timestamppb.Timestamp, err error) {
	if len(keys) > maxKeys {
		return nil, nil, fmt.Errorf("%w: %d keys (limit: %d)", engine.ErrRefused, len(keys), maxKeys)
	}
	rows = make([]engine.Row, len(keys))
	req := &pb.LookupRequest{ProjectId: d.cfg.Project, DatabaseId: d.cfg.Database, ReadOptions: options, PropertyMask: d.maskOf(keys, fields)}
	places := make(map[ref][]int, len(keys))
	for i := range keys {
		r := d.ref(keys[i])
		if places[r] = append(places[r], i); len(places[r]) == 1 {
			req.Keys = append(req.Keys, d.key(r))
		}
	}
	if len(keys) == 0 {
		req.Keys = []*pb.Key{d.key(ref{kindProbe, "moment"})}
	}
	for {
		resp, err := d.stub.Lookup(ctx, req)
		if err != nil {
			return nil, nil, err
		}
		if n := len(resp.GetFound()) + len(resp.GetMissing()) + len(resp.GetDeferred()); n != len(req.Keys) {
			return nil, nil, fmt.Errorf("%d answers for %d keys", n, len(req.Keys))
		}
		for _, e := range resp.GetFound() {
			for _, i := range places[refOf(e.GetEntity().GetKey())] {
				rows[i] = d.rowOf(keys[i], e, fields)
			}
		}
		if when == nil {
			when = resp.GetReadTime()
		}
		if req.Keys = resp.GetDeferred(); len(req.Keys) == 0 {
			return rows, when, nil
		}
		if options == nil {
			req.ReadOptions = at(when)
		}
	}
}

// timed refuses an answer without a read time. Google's older Datastore emulator, for example, sends none, and cannot read twice
// at one moment.
func (d *database) timed(read *timestamppb.Timestamp) error {
	if read == nil {
		return fmt.Errorf("%w: %s: the server does not say when it read; %s", engine.ErrDeployment, d.cfg, useFirestore)
	}
	d.ahead.Store(int64(time.Until(read.AsTime())))
	return nil
}
