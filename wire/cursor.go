package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/countmill/countmill"
)

// A cursor walks the fields of a message. bytes and text have the same content; names are
// substrings of text.
type cursor struct {
	bytes []byte
	text  string
}

func (c *cursor) done() bool { return len(c.bytes) == 0 }

func (c *cursor) skip(n int) { c.bytes, c.text = c.bytes[n:], c.text[n:] }

// next reports whether the next field has that number.
func (c *cursor) next(number protowire.Number) bool {
	got, _, n := protowire.ConsumeTag(c.bytes)
	return n > 0 && got == number
}

func (c *cursor) tag(number protowire.Number, kind protowire.Type) error {
	if c.done() {
		return fmt.Errorf("field %d is missing", number)
	}
	gotNumber, gotKind, n := protowire.ConsumeTag(c.bytes)
	if n < 0 {
		return protowire.ParseError(n)
	}
	if gotNumber != number || gotKind != kind {
		return fmt.Errorf("field %d of type %d, want field %d of type %d", gotNumber, gotKind, number, kind)
	}
	c.skip(n)
	return nil
}

func (c *cursor) varint(number protowire.Number) (uint64, error) {
	if err := c.tag(number, protowire.VarintType); err != nil {
		return 0, err
	}
	v, n := protowire.ConsumeVarint(c.bytes)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	c.skip(n)
	return v, nil
}

func (c *cursor) fixed64(number protowire.Number) (uint64, error) {
	if err := c.tag(number, protowire.Fixed64Type); err != nil {
		return 0, err
	}
	v, n := protowire.ConsumeFixed64(c.bytes)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	c.skip(n)
	return v, nil
}

// message returns the content of a length-delimited field.
func (c *cursor) message(number protowire.Number) (cursor, error) {
	if err := c.tag(number, protowire.BytesType); err != nil {
		return cursor{}, err
	}
	v, n := protowire.ConsumeBytes(c.bytes)
	if n < 0 {
		return cursor{}, protowire.ParseError(n)
	}
	inner := cursor{bytes: v, text: c.text[n-len(v) : n]}
	c.skip(n)
	return inner, nil
}

// name returns the content of a field, which must be valid by countmill.CheckID. Errors name the
// field what.
func (c *cursor) name(number protowire.Number, what string) (string, error) {
	m, err := c.message(number)
	if err != nil {
		return "", err
	}
	return m.text, countmill.CheckID(what, m.text)
}
