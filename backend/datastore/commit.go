package datastore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store/engine"
)

// A writing is the mutations of one commit.
type writing struct {
	d         *database
	mutations []*pb.Mutation
	wants     [][2]int // the mutation and the transform of each number that the caller wants
	updates   bool     // one of them needs an entity that exists
}

// add makes the mutation of a change. No other function writes rows.
func (w *writing) add(c *engine.Change) error {
	kind, r := &w.d.kinds[c.Key.Kind], w.d.ref(c.Key)
	if c.Op == engine.Delete {
		w.mutations = append(w.mutations, w.d.remove(r))
		return nil
	}
	e := &pb.Entity{Key: w.d.key(r), Properties: make(map[string]*pb.Value)}
	m := &pb.Mutation{PropertyMask: &pb.PropertyMask{}}
	set := func(property string, v *pb.Value) { // a property of the mask without a value is removed
		if m.PropertyMask.Paths = append(m.PropertyMask.Paths, property); v != nil {
			e.Properties[property] = v
		}
	}
	if hasName(kind) && c.Op != engine.Update {
		set(nameProperty, nameValue(kind, c.Key.Name))
	}
	for _, id := range c.Unset {
		property, spec := propertyOf(kind, id)
		if set(property, nil); spec.Wide {
			set(property+high, nil)
		}
	}
	for _, f := range c.Set {
		property, spec := propertyOf(kind, f.ID)
		low, upper, err := split(spec, f.Value)
		if err != nil {
			return err
		}
		if set(property, other(number(kind, f.ID, low), low)); spec.Wide {
			set(property+high, other(integer(upper), upper))
		}
	}
	if c.Data != nil {
		set(dataProperty, blob(bytes.Clone(c.Data)))
	}
	if err := transforms(m, kind, c); err != nil {
		return err
	}
	for _, id := range c.Want {
		property, _ := propertyOf(kind, id)
		at := len(m.PropertyTransforms) - 1
		for at >= 0 && m.PropertyTransforms[at].GetProperty() != property {
			at--
		}
		w.wants = append(w.wants, [2]int{len(w.mutations), at})
	}
	// Without the mask an upsert would clear all other properties. An empty one may count as none.
	if len(m.PropertyMask.Paths) == 0 {
		set(noProperty, nil)
	}
	switch c.Op {
	case engine.Insert:
		m.Operation, m.PropertyMask = &pb.Mutation_Insert{Insert: e}, nil
	case engine.Update:
		m.Operation, w.updates = &pb.Mutation_Update{Update: e}, true
	default:
		m.Operation = &pb.Mutation_Upsert{Upsert: e}
	}
	w.mutations = append(w.mutations, m)
	return nil
}

// transforms adds the maxima and the additions of a change, in this order. The mark of a value says whether the property is
// indexed. An ordinary delta has no upper part.
func transforms(m *pb.Mutation, kind *engine.Kind, c *engine.Change) error {
	for _, f := range c.Max {
		property, _ := propertyOf(kind, f.ID)
		m.PropertyTransforms = append(m.PropertyTransforms, &pb.PropertyTransform{
			Property: property, TransformType: &pb.PropertyTransform_Maximum{Maximum: number(kind, f.ID, int64(f.Value.Lo))},
		})
	}
	for _, f := range c.Add {
		property, spec := propertyOf(kind, f.ID)
		low, upper, err := split(spec, f.Value)
		if err != nil {
			return err
		}
		if low != 0 || !spec.Wide {
			m.PropertyTransforms = append(m.PropertyTransforms, plus(property, number(kind, f.ID, low)))
		}
		if upper != 0 {
			m.PropertyTransforms = append(m.PropertyTransforms, plus(property+high, integer(upper)))
		}
	}
	return nil
}

func plus(property string, n *pb.Value) *pb.PropertyTransform {
	return &pb.PropertyTransform{Property: property, TransformType: &pb.PropertyTransform_Increment{Increment: n}}
}

// split returns the parts of a number; upper is 0 for a narrow field.
func split(spec *engine.FieldSpec, n engine.Int) (low, upper int64, err error) {
	low, fits := n.Int64()
	if spec.Wide {
		low, upper, fits = n.Split()
	}
	if !fits {
		return 0, 0, fmt.Errorf("%w: %s is too large for %s", engine.ErrRefused, n, spec.Name)
	}
	return low, upper, nil
}

// other returns v unless n is 0: a field of 0 is absent.
func other(v *pb.Value, n int64) *pb.Value {
	if n == 0 {
		return nil
	}
	return v
}

func (d *database) remove(r ref) *pb.Mutation {
	return &pb.Mutation{Operation: &pb.Mutation_Delete{Delete: d.key(r)}}
}

// Commit is one call. Commits write rows in the order of keys: two that share rows then lock them in the same order
// and queue up, instead of waiting for each other in a circle.
func (d *database) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	if len(c.Require) > 0 {
		return engine.Result{}, fmt.Errorf("%w: Datastore has no conditions", engine.ErrRefused)
	}
	w := &writing{d: d}
	for change := range c.Changes {
		err := w.add(change)
		if d.cfg.ReadOnly && len(change.Add) > 0 {
			err = fmt.Errorf("%w: %s was opened for reading only", engine.ErrDeployment, d.cfg)
		}
		if err != nil {
			return engine.Result{}, err
		}
	}
	ctx, cancel, err := d.call(ctx)
	if err != nil {
		return engine.Result{}, notApplied(err)
	}
	defer cancel()
	return d.apply(ctx, nil, w)
}

var readWrite = &pb.TransactionOptions{Mode: &pb.TransactionOptions_ReadWrite_{ReadWrite: &pb.TransactionOptions_ReadWrite{}}}

// apply commits, in a transaction or in a single-use one, and checks the answer.
func (d *database) apply(ctx context.Context, tx []byte, w *writing) (result engine.Result, err error) {
	if len(w.mutations) > maxRows {
		return result, fmt.Errorf("%w: a commit of %d rows (limit: %d)", engine.ErrRefused, len(w.mutations), maxRows)
	}
	resp, err := d.commit(ctx, tx, w.mutations)
	if err == nil {
		err = checkResults(w.mutations, resp)
	}
	if err != nil {
		return result, d.explain("commit", err, w.updates)
	}
	if at := resp.GetCommitTime(); at != nil {
		result.At = at.AsTime()
	}
	for _, want := range w.wants {
		result.Got = append(result.Got, resp.GetMutationResults()[want[0]].GetTransformResults()[want[1]].GetIntegerValue())
	}
	return result, d.confirm(ctx, "commit")
}

func (d *database) commit(ctx context.Context, tx []byte, mutations []*pb.Mutation) (*pb.CommitResponse, error) {
	req := &pb.CommitRequest{
		ProjectId: d.cfg.Project, DatabaseId: d.cfg.Database, Mode: pb.CommitRequest_TRANSACTIONAL, Mutations: mutations,
		TransactionSelector: &pb.CommitRequest_SingleUseTransaction{SingleUseTransaction: readWrite},
	}
	if tx != nil {
		req.TransactionSelector = &pb.CommitRequest_Transaction{Transaction: tx}
	}
	return d.stub.Commit(ctx, req)
}

// checkResults checks that the server applied the transforms. A server that does not support them ignores them and answers OK.
func checkResults(mutations []*pb.Mutation, resp *pb.CommitResponse) error {
	results := resp.GetMutationResults()
	if len(results) != len(mutations) {
		return fmt.Errorf("%w: %d results for %d mutations", engine.ErrNotCounted, len(results), len(mutations))
	}
	for i, m := range mutations {
		got, want := results[i].GetTransformResults(), len(m.GetPropertyTransforms())
		if len(got) != want || slices.ContainsFunc(got, func(v *pb.Value) bool { _, ok := v.GetValueType().(*pb.Value_IntegerValue); return !ok }) {
			return fmt.Errorf("%w: %d of %d transform results", engine.ErrNotCounted, len(got), want)
		}
	}
	return nil
}

// Expire does nothing on an open database: a TTL policy removes rows.
func (d *database) Expire(ctx context.Context, _ engine.KindID, _ int64) error {
	_, cancel, err := d.bound(ctx)
	if err == nil {
		cancel()
	}
	return err
}

// rollbackTimeout bounds the rollback of a transaction.
const rollbackTimeout = 5 * time.Second

// Transact begins a transaction of the service with the first Get. The service locks the rows that it has read, also absent ones.
func (d *database) Transact(ctx context.Context, _ bool, do func(engine.Tx) error) (engine.Result, error) {
	ctx, cancel, err := d.call(ctx)
	if err != nil {
		return engine.Result{}, notApplied(err)
	}
	defer cancel()
	tx := &transaction{writing: writing{d: d}}
	defer func() { // others would wait until the server ends it
		if tx.id != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			_, _ = d.stub.Rollback(ctx, &pb.RollbackRequest{ProjectId: d.cfg.Project, DatabaseId: d.cfg.Database, Transaction: tx.id})
		}
	}()
	err = do(tx)
	tx.ended = true
	if err == nil {
		err = tx.problem
	}
	if err != nil || len(tx.mutations) == 0 {
		return engine.Result{}, err
	}
	result, err := d.apply(ctx, tx.id, &tx.writing)
	if err == nil {
		tx.id = nil
	}
	return result, conflict(err)
}

// conflict is the meaning of contention in a transaction: the service has aborted it. An answer that maybe came from another
// database has none.
func conflict(err error) error {
	if errors.Is(err, engine.ErrContended) {
		return fmt.Errorf("%w: %w", engine.ErrConflict, err)
	}
	return err
}

// A transaction is an engine.Tx.
type transaction struct {
	writing
	id      []byte
	now     time.Time
	problem error
	ended   bool
}

func (tx *transaction) Now() time.Time { return tx.now }

func (tx *transaction) Restores() int64 { return 0 }

func (tx *transaction) Change(c *engine.Change) {
	if err := tx.add(c); err != nil && tx.problem == nil {
		tx.problem = err
	}
}

func (tx *transaction) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) (rows []engine.Row, err error) {
	if tx.ended {
		return nil, errors.New("the transaction has ended")
	}
	if rows, err = tx.get(ctx, keys, fields); err != nil {
		err = conflict(tx.d.explain("read in a transaction", err, false))
		if tx.problem == nil {
			tx.problem = err
		}
	}
	return rows, err
}

func (tx *transaction) get(ctx context.Context, keys []engine.Key, fields []engine.FieldID) ([]engine.Row, error) {
	d := tx.d
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	if tx.id == nil {
		begun, err := d.stub.BeginTransaction(ctx, &pb.BeginTransactionRequest{
			ProjectId: d.cfg.Project, DatabaseId: d.cfg.Database, TransactionOptions: readWrite,
		})
		if err != nil {
			return nil, err
		}
		tx.id = begun.GetTransaction()
	}
	rows, when, err := d.lookup(ctx, &pb.ReadOptions{ConsistencyType: &pb.ReadOptions_Transaction{Transaction: tx.id}}, keys, fields)
	if err == nil {
		err = d.timed(when)
	}
	if err == nil && tx.now.IsZero() {
		tx.now = when.AsTime()
	}
	return rows, err
}
