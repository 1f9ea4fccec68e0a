package datastore

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill/store/engine"
)

// The kinds share a prefix, because Google's own example of a sharded counter has a kind Counter that is keyed by the
// counter's name.
const prefix = "Countmill"

// kindName is the name of a kind in the database.
func kindName(k *engine.Kind) string { return prefix + strings.ToUpper(k.Name[:1]) + k.Name[1:] }

// A ref is a key without its partition.
type ref struct{ kind, name string }

func refOf(k *pb.Key) ref {
	path := k.GetPath()
	if len(path) != 1 {
		return ref{}
	}
	return ref{path[0].GetKind(), path[0].GetName()}
}

func (d *database) key(r ref) *pb.Key {
	return &pb.Key{
		PartitionId: d.partition(),
		Path:        []*pb.Key_PathElement{{Kind: r.kind, IdType: &pb.Key_PathElement_Name{Name: r.name}}},
	}
}

// partition returns nil for the default namespace, as Google's client does.
func (d *database) partition() *pb.PartitionId {
	if d.cfg.Namespace == "" {
		return nil
	}
	return &pb.PartitionId{NamespaceId: d.cfg.Namespace}
}

// ref returns the key of a row. Names of keys have the order of rows: in ASCII a tab comes before the names of kinds with
// parts, and - before the digits. None has the form __x__, which Datastore reserves.
func (d *database) ref(k engine.Key) ref {
	kind := &d.kinds[k.Kind]
	var name []byte
	if kind.Places {
		if name = fmt.Appendf(name, "%08x", k.Place>>32); uint32(k.Place) != 0 {
			name = fmt.Appendf(name, "%08x", uint32(k.Place))
		}
	}
	if name = append(name, '-'); kind.Binary {
		name = hex.AppendEncode(name, []byte(k.Name))
	} else {
		name = append(name, k.Name...)
	}
	if kind.Parts {
		name = fmt.Appendf(name, "\t%06x", k.Part)
	}
	return ref{kindName(kind), string(name)}
}

// keyOf is the opposite of ref; ok is false for the key of another program.
func (d *database) keyOf(id engine.KindID, r ref) (k engine.Key, ok bool) {
	kind := &d.kinds[id]
	place, name, _ := strings.Cut(r.name, "-")
	k.Kind = id
	if len(place) == 8 {
		place += "00000000"
	}
	k.Place, _ = strconv.ParseUint(place, 16, 64)
	if at := strings.LastIndexByte(name, '\t'); kind.Parts && at >= 0 {
		part, _ := strconv.ParseUint(name[at+1:], 16, 24)
		name, k.Part = name[:at], uint32(part)
	}
	if k.Name = name; kind.Binary {
		bytes, _ := hex.DecodeString(name)
		k.Name = string(bytes)
	}
	return k, k.Name != "" && d.ref(k) == r
}

// The properties that are not named by a field. A row has its name where rows with places are scanned in the order of names.
const (
	dataProperty = "data"
	nameProperty = "name"
	// expiresProperty is the due of a kind that expires: that of the TTL policy.
	expiresProperty = "expire_at"
	// noProperty is a property that no entity has.
	noProperty = "none"
)

// high ends the property with the upper part of a wide field (engine.Int.Split).
const high = "_high"

func hasName(k *engine.Kind) bool { return k.Places && k.ByName }

// nameValue is the value of the property name. It is indexed.
func nameValue(k *engine.Kind, name string) *pb.Value {
	if k.Binary {
		return &pb.Value{ValueType: &pb.Value_BlobValue{BlobValue: []byte(name)}}
	}
	return &pb.Value{ValueType: &pb.Value_StringValue{StringValue: name}}
}

// propertyOf is the property of a field.
func propertyOf(k *engine.Kind, id engine.FieldID) (property string, spec *engine.FieldSpec) {
	switch spec = k.Field(id); {
	case spec == nil:
		return noProperty, &engine.FieldSpec{}
	case id == k.Due && k.Expires:
		return expiresProperty, spec
	case spec.Open:
		return spec.Name + strconv.FormatUint(uint64(id-spec.ID), 10), spec
	}
	return spec.Name, spec
}

// fieldOf is the opposite of propertyOf, also for the property of the upper part.
func fieldOf(k *engine.Kind, property string) (id engine.FieldID, upper, ok bool) {
	if property == expiresProperty && k.Expires {
		return k.Due, false, true
	}
	name, upper := strings.CutSuffix(property, high)
	for i := range k.Fields {
		spec := &k.Fields[i]
		if upper && !spec.Wide {
			continue
		}
		if !spec.Open && spec.Name == name {
			return spec.ID, upper, true
		}
		if digits, found := strings.CutPrefix(name, spec.Name); spec.Open && found {
			if n, err := strconv.ParseUint(digits, 10, 31); err == nil && strconv.FormatUint(n, 10) == digits {
				return spec.ID + engine.FieldID(n), upper, true
			}
		}
	}
	return 0, false, false
}

// Properties are not indexed, but for those of queries. An index costs a write, and an index on times or counts would limit the
// whole kind to 500 writes a second.

func integer(n int64) *pb.Value {
	return &pb.Value{ExcludeFromIndexes: true, ValueType: &pb.Value_IntegerValue{IntegerValue: n}}
}

func blob(v []byte) *pb.Value {
	return &pb.Value{ExcludeFromIndexes: true, ValueType: &pb.Value_BlobValue{BlobValue: v}}
}

// number is the value of a narrow field, or of one part of a wide one. A TTL policy needs a time, and Due an index.
func number(k *engine.Kind, id engine.FieldID, n int64) *pb.Value {
	v := integer(n)
	if id == k.Due && k.Expires {
		v.ValueType = &pb.Value_TimestampValue{TimestampValue: timestamppb.New(time.UnixMicro(n))}
	} else if id == k.Due {
		v.ExcludeFromIndexes = false
	}
	return v
}

// numberOf is the opposite of number.
func numberOf(v *pb.Value) (n int64, ok bool) {
	switch v := v.GetValueType().(type) {
	case *pb.Value_IntegerValue:
		return v.IntegerValue, true
	case *pb.Value_TimestampValue:
		return v.TimestampValue.AsTime().UnixMicro(), true
	}
	return 0, false
}

// maskOf are the properties of fields in the kinds of keys, or nil for all.
func (d *database) maskOf(keys []engine.Key, fields []engine.FieldID) *pb.PropertyMask {
	mask := &pb.PropertyMask{Paths: []string{noProperty}}
	var done []engine.KindID
	for i := range keys {
		kind := &d.kinds[keys[i].Kind]
		if slices.Contains(done, keys[i].Kind) {
			continue
		}
		done = append(done, keys[i].Kind)
		for _, id := range fields {
			switch property, spec := propertyOf(kind, id); {
			case id == engine.All:
				return nil
			case id == engine.Data:
				mask.Paths = append(mask.Paths, dataProperty)
			case spec.Wide:
				mask.Paths = append(mask.Paths, property, property+high)
			case property != noProperty:
				mask.Paths = append(mask.Paths, property)
			}
		}
	}
	slices.Sort(mask.Paths)
	mask.Paths = slices.Compact(mask.Paths)
	return mask
}

// rowOf reads fields of an entity.
func (d *database) rowOf(key engine.Key, e *pb.EntityResult, fields []engine.FieldID) engine.Row {
	r := engine.Row{Key: key, Exists: true, Updated: updated(e)}
	kind, all := &d.kinds[key.Kind], slices.Contains(fields, engine.All)
	bad := func(property, want string) engine.Row {
		return engine.Row{Key: key, Exists: true, Updated: r.Updated, Bad: fmt.Sprintf("its property %s is not %s: another program wrote it", property, want)}
	}
	for property, v := range e.GetEntity().GetProperties() {
		if property == dataProperty && kind.Class != engine.Sums {
			data, ok := v.GetValueType().(*pb.Value_BlobValue)
			if !ok {
				return bad(property, "bytes")
			}
			if all || slices.Contains(fields, engine.Data) {
				r.Data = data.BlobValue
			}
			continue
		}
		id, upper, known := fieldOf(kind, property)
		if !known || !all && !slices.Contains(fields, id) {
			continue
		}
		n, ok := numberOf(v)
		if !ok {
			return bad(property, "a number")
		}
		field := engine.Field{ID: id, Value: engine.IntOf(n)}
		if upper {
			field.Value = engine.Join(0, n)
		}
		r.Fields = append(r.Fields, field)
	}
	slices.SortFunc(r.Fields, func(a, b engine.Field) int { return cmp.Compare(a.ID, b.ID) })
	sums := r.Fields[:0]
	for _, f := range r.Fields {
		if n := len(sums); n > 0 && sums[n-1].ID == f.ID {
			sums[n-1].Value = sums[n-1].Value.Add(f.Value)
		} else {
			sums = append(sums, f)
		}
	}
	r.Fields = slices.DeleteFunc(sums, func(f engine.Field) bool { return f.Value == engine.Int{} })
	return r
}

func updated(e *pb.EntityResult) time.Time {
	if e.GetUpdateTime() == nil {
		return time.Time{}
	}
	return e.GetUpdateTime().AsTime()
}
