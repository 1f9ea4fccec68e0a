//go:build !nogoogle

package appengine

import (
	"fmt"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
)

// An entity is what a shard may be made of.
type entity struct {
	kind string
	name string // empty if the key has a number
	id   int64

	child  bool // its key has a parent
	values map[string]any
}

func entityOf(e *pb.Entity) entity {
	var out entity
	if path := e.GetKey().GetPath(); len(path) > 0 {
		last := path[len(path)-1]
		out.kind, out.name, out.id = last.GetKind(), last.GetName(), last.GetId()
		out.child = len(path) > 1
	}
	out.values = make(map[string]any, len(e.GetProperties()))
	for name, value := range e.GetProperties() {
		out.values[name] = plain(value)
	}
	return out
}

// plain returns the integer, the number or the text that a property has, nil for null, and the whole value otherwise.
func plain(v *pb.Value) any {
	switch value := v.GetValueType().(type) {
	case *pb.Value_IntegerValue:
		return value.IntegerValue
	case *pb.Value_DoubleValue:
		return value.DoubleValue
	case *pb.Value_StringValue:
		return value.StringValue
	case nil, *pb.Value_NullValue:
		return nil
	}
	return v
}

// String returns the end of the entity's key.
func (e entity) String() string {
	if e.name != "" {
		return fmt.Sprintf("/%s,%s", e.kind, e.name)
	}
	return fmt.Sprintf("/%s,%d", e.kind, e.id)
}
