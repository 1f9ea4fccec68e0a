package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/httpserver"
)

// asChange returns err as a problem if it can say more than package countmill's errors do.
func asChange(err error) error {
	if lower, ok := errors.AsType[*admin.LowerError](err); ok {
		p := httpserver.NewProblem(http.StatusConflict, "lower", "never lowered", lower.Error())
		p.Field, p.Limit = "shards", fmt.Sprintf("%d to %d", lower.Named, countmill.MaxShards)
		return p
	}
	if errors.Is(err, countmill.ErrOutcomeUnknown) {
		p := httpserver.AsProblem(err)
		p.Detail = "this was maybe done: repeat it, a reset only with the same id"
		return p
	}
	return err
}

// A growRequest is the number of shards that a counter is to have.
type growRequest struct {
	Shards integer `json:"shards"`
}

// A grown counter as clients see it.
type grown struct {
	Counter string `json:"counter"`
	Shards  int    `json:"shards"`
}

func (a *API) grow(c call) (any, error) {
	request := c.body.(*growRequest)
	if !request.Shards.given {
		return nil, growBody.missing("shards")
	}
	name, shards := c.name(), request.Shards.value
	if err := c.caller().Check(name); err != nil {
		return nil, err
	}
	return grown{name, shards}, asChange(a.services.Admin.Grow(c.ctx, name, shards))
}

// removed is the effect of a reset or a delete as clients see it.
type removed struct {
	Counter  string  `json:"counter"`
	Removed  *number `json:"removed"` // null if it does not fit 64 bits
	Exact    string  `json:"removed_exact,omitempty"`
	Overflow bool    `json:"overflow,omitempty"`
	AsOf     string  `json:"as_of"`
	Exists   bool    `json:"exists"`
}

func removedOf(counter string, d admin.Done, asString bool) removed {
	r := removed{Counter: counter, AsOf: httpserver.FormatTime(d.At), Exists: d.Existed}
	if n, fits := d.Removed.Int64(); fits {
		r.Removed = &number{n, asString}
	} else {
		r.Exact, r.Overflow = d.Removed.String(), true
	}
	return r
}

// A number is written as a JSON integer, or as a string of one.
type number struct {
	value    int64
	asString bool
}

func (n number) MarshalJSON() ([]byte, error) {
	text := strconv.FormatInt(n.value, 10)
	if n.asString {
		text = strconv.Quote(text)
	}
	return []byte(text), nil
}

func (a *API) delete(c call) (any, error) {
	name := c.name()
	if err := c.caller().Check(name); err != nil {
		return nil, err
	}
	d, err := a.services.Admin.Delete(c.ctx, name)
	return removedOf(name, d, c.quoted()), asChange(err)
}

// A resetRequest names a counter and, if it has one, the id of the reset.
type resetRequest struct {
	Counter text `json:"counter"`
	ID      text `json:"id"`
}

func (a *API) reset(c call) (any, error) {
	request := c.body.(*resetRequest)
	if !request.Counter.given {
		return nil, resetBody.missing("counter")
	}
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
	return removedOf(name, d, c.quoted()), asChange(err)
}
