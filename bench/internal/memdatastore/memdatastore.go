// Package memdatastore is as much of Google's Datastore, in memory, as folds, moves and sweeps of series
// need. A store of backend/datastore runs on it without a network, also in virtual time.
package memdatastore

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A Key names an entity.
type Key struct{ Kind, Name string }

// A Server has the entities. Calls must follow each other: answers share memory with the entities, and
// transactions take no locks.
type Server struct {
	listener *bufconn.Listener
	grpc     *grpc.Server

	mu       sync.Mutex
	wrote    func(k Key, removed map[string]*pb.Value)
	entities map[Key]map[string]*pb.Value
	due      map[int64]map[Key]struct{} // the index of the property "due"
}

// New returns an empty server. It calls wrote for each entity of each commit, with the properties of a
// deleted one.
func New(wrote func(k Key, removed map[string]*pb.Value)) *Server {
	s := &Server{
		wrote: wrote, entities: make(map[Key]map[string]*pb.Value), due: make(map[int64]map[Key]struct{}),
		listener: bufconn.Listen(1 << 16),
		grpc:     grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})),
	}
	go func() { _ = s.grpc.Serve(s.listener) }()
	return s
}

// DialOptions make a connection call the server instead of the network. The connection is a real one,
// because a store checks its database for each new one, but no call goes through it.
func (s *Server) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(s.answer), grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }),
	}
}

// Close ends all connections.
func (s *Server) Close() { s.grpc.Stop() }

func (s *Server) answer(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		conn.Connect()
		if !conn.WaitForStateChange(ctx, state) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r := req.(type) {
	case *pb.CommitRequest:
		return s.commit(r, reply.(*pb.CommitResponse))
	case *pb.LookupRequest:
		s.lookup(r, reply.(*pb.LookupResponse))
	case *pb.RunQueryRequest:
		return s.query(r, reply.(*pb.RunQueryResponse))
	case *pb.BeginTransactionRequest:
		reply.(*pb.BeginTransactionResponse).Transaction = []byte{1}
	case *pb.RollbackRequest:
	default:
		return status.Error(codes.Unimplemented, method)
	}
	return nil
}

// Sum is the sum of the integers of all entities of a kind whose property begins with a prefix.
func (s *Server) Sum(kind, prefix string) (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, properties := range s.entities {
		for name, v := range properties {
			if k.Kind == kind && strings.HasPrefix(name, prefix) {
				sum += v.GetIntegerValue()
			}
		}
	}
	return sum
}

func keyOf(k *pb.Key) Key { return Key{k.GetPath()[0].GetKind(), k.GetPath()[0].GetName()} }

func (s *Server) commit(req *pb.CommitRequest, resp *pb.CommitResponse) error {
	for _, m := range req.GetMutations() {
		if k := m.GetInsert().GetKey(); k != nil && s.entities[keyOf(k)] != nil {
			return status.Errorf(codes.AlreadyExists, "%v exists", keyOf(k))
		}
	}
	for _, m := range req.GetMutations() {
		results, err := s.apply(m)
		if err != nil {
			return err
		}
		resp.MutationResults = append(resp.MutationResults, &pb.MutationResult{TransformResults: results})
	}
	resp.CommitTime = timestamppb.New(time.Now())
	return nil
}

func (s *Server) apply(m *pb.Mutation) (results []*pb.Value, err error) {
	if m.GetDelete() != nil {
		k := keyOf(m.GetDelete())
		s.wrote(k, s.entities[k])
		s.index(k, func() { delete(s.entities, k) })
		return nil, nil
	}
	e := cmp.Or(m.GetInsert(), m.GetUpsert(), m.GetUpdate())
	k := keyOf(e.GetKey())
	s.index(k, func() {
		set(s.propertiesOf(k, m.GetPropertyMask() == nil), e, m.GetPropertyMask())
		results, err = transform(s.entities[k], m.GetPropertyTransforms())
	})
	s.wrote(k, nil)
	return results, err
}

// propertiesOf makes the entity if there is none. With anew it loses its properties.
func (s *Server) propertiesOf(k Key, anew bool) map[string]*pb.Value {
	properties := s.entities[k]
	if properties == nil || anew {
		properties = make(map[string]*pb.Value)
		s.entities[k] = properties
	}
	return properties
}

// index makes a change of an entity, and keeps the index.
func (s *Server) index(k Key, change func()) {
	before, was := s.entities[k]["due"]
	old := before.GetIntegerValue()
	change()
	after, is := s.entities[k]["due"]
	if was && (!is || after.GetIntegerValue() != old) {
		if delete(s.due[old], k); len(s.due[old]) == 0 {
			delete(s.due, old)
		}
	}
	if is {
		due := after.GetIntegerValue()
		if s.due[due] == nil {
			s.due[due] = make(map[Key]struct{})
		}
		s.due[due][k] = struct{}{}
	}
}

// set changes the properties in the mask, or sets all of the entity's without one. A property of the
// mask that has no value is removed.
func set(properties map[string]*pb.Value, e *pb.Entity, mask *pb.PropertyMask) {
	for _, name := range mask.GetPaths() {
		delete(properties, name)
	}
	for name, v := range e.GetProperties() {
		if mask == nil || slices.Contains(mask.GetPaths(), name) {
			if _, ok := v.GetValueType().(*pb.Value_IntegerValue); ok {
				v = integer(v.GetIntegerValue()) // transforms change it
			}
			properties[name] = v
		}
	}
}

func integer(n int64) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_IntegerValue{IntegerValue: n}}
}

func transform(properties map[string]*pb.Value, transforms []*pb.PropertyTransform) ([]*pb.Value, error) {
	results := make([]*pb.Value, 0, len(transforms))
	for _, t := range transforms {
		v, ok := properties[t.GetProperty()].GetValueType().(*pb.Value_IntegerValue)
		if !ok {
			made := integer(0)
			v, _ = made.GetValueType().(*pb.Value_IntegerValue)
			properties[t.GetProperty()] = made
		}
		switch t.GetTransformType().(type) {
		case *pb.PropertyTransform_Increment:
			v.IntegerValue += t.GetIncrement().GetIntegerValue()
		case *pb.PropertyTransform_Maximum:
			v.IntegerValue = max(v.IntegerValue, t.GetMaximum().GetIntegerValue())
		default:
			return nil, status.Errorf(codes.Unimplemented, "transform %v", t)
		}
		results = append(results, properties[t.GetProperty()])
	}
	return results, nil
}

func (s *Server) lookup(req *pb.LookupRequest, resp *pb.LookupResponse) {
	for _, k := range req.GetKeys() {
		e := &pb.EntityResult{Entity: &pb.Entity{Key: k, Properties: s.entities[keyOf(k)]}}
		if e.Entity.Properties == nil {
			resp.Missing = append(resp.Missing, e)
		} else {
			resp.Found = append(resp.Found, e)
		}
	}
	resp.ReadTime = timestamppb.New(time.Now())
}

// query knows one query: the keys of a kind in the order of "due", up to a value, after a cursor.
func (s *Server) query(req *pb.RunQueryRequest, resp *pb.RunQueryResponse) error {
	q := req.GetQuery()
	f := q.GetFilter().GetPropertyFilter()
	if f.GetProperty().GetName() != "due" || f.GetOp() != pb.PropertyFilter_LESS_THAN_OR_EQUAL {
		return status.Error(codes.Unimplemented, "a query other than by due")
	}
	type row struct {
		at  string
		key Key
	}
	var rows []row
	for due, keys := range s.due {
		for k := range keys {
			at := fmt.Sprintf("%020d %s", due, k.Name)
			if due <= f.GetValue().GetIntegerValue() && k.Kind == q.GetKind()[0].GetName() && at > string(q.GetStartCursor()) {
				rows = append(rows, row{at, k})
			}
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.at, b.at) })
	rows = rows[:min(len(rows), int(q.GetLimit().GetValue()))]
	resp.Batch = &pb.QueryResultBatch{ReadTime: timestamppb.New(time.Now())}
	for _, r := range rows {
		resp.Batch.EntityResults = append(resp.Batch.EntityResults, &pb.EntityResult{Entity: &pb.Entity{Key: &pb.Key{
			Path: []*pb.Key_PathElement{{Kind: r.key.Kind, IdType: &pb.Key_PathElement_Name{Name: r.key.Name}}},
		}}})
		resp.Batch.EndCursor = []byte(r.at)
	}
	return nil
}
