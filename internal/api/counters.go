package api

import (
	"fmt"
	"strconv"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
)

// A growRequest is the number of shards that a counter is to have.
type growRequest struct {
	// An integer literal: neither 40.0 nor 4e1.
	Shards integer `json:"shards" schema:"1..999"`
}

func (a *API) grow(c call) (any, error) {
	request := c.body.(*growRequest)
	name, shards := c.name(), request.Shards.value
	return client.Grown{Counter: name, Shards: shards}, a.services.Admin.Grow(c.ctx, name, shards)
}

// removed is an answer, which clients see as a client.Removed.
type removed struct {
	counter string
	admin.Done
	quoted bool
}

// AppendJSON makes it an httpserver.Appender.
func (r *removed) AppendJSON(b []byte) []byte {
	b = append(appendString(append(b, `{"counter":`...), r.counter), `,"removed":`...)
	if n, fits := r.Removed.Int64(); fits {
		b = appendQuoted(b, n, r.quoted)
	} else {
		b = fmt.Appendf(b, `null,"removed_exact":"%s","overflow":true`, r.Removed)
	}
	b = append(appendTime(append(b, `,"as_of":"`...), r.At), '"')
	return append(strconv.AppendBool(append(b, `,"exists":`...), r.Existed), '}')
}

func (a *API) delete(c call) (any, error) {
	name := c.name()
	d, err := a.services.Admin.Delete(c.ctx, name)
	return &removed{name, d, c.quoted()}, err
}

// A resetRequest names a counter and, if it has one, the id of the reset.
type resetRequest struct {
	Counter text `json:"counter" schema:"CounterName"`
	// The same id on the same counter is one reset, from any sender.
	ID text `json:"id,omitzero" schema:"len 1..128"`
}

func (a *API) reset(c call) (any, error) {
	request := c.body.(*resetRequest)
	if request.ID.given {
		if err := countmill.CheckID("id", request.ID.value); err != nil {
			return nil, err
		}
	}
	name := request.Counter.value
	if err := c.caller().Check(name); err != nil {
		return nil, err
	}
	d, err := a.services.Admin.Reset(c.ctx, name, request.ID.value)
	return &removed{name, d, c.quoted()}, err
}
