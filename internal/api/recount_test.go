package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// fakeRecounts answers every query with the same.
type fakeRecounts struct {
	asked  recount.Query
	result recount.Result
	err    error
}

func (f *fakeRecounts) Recount(ctx context.Context, q recount.Query) (recount.Result, error) {
	f.asked = q
	if _, bounded := ctx.Deadline(); !bounded {
		return recount.Result{}, errors.New("the call has no end")
	}
	return f.result, f.err
}

func TestRecount(t *testing.T) {
	t.Parallel()
	minute := wire.MinuteOf(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	f := &fakeRecounts{result: recount.Result{
		At: asOf, Counters: 2, Buckets: 3, Entries: 9, Opened: 4, Next: "ff", Done: 500,
		Findings: []recount.Finding{
			{Kind: recount.WrongTotal, Name: "billing:a", Stored: int128.Of(-5), Counted: int128.Of(7), Fixed: true},
			{Kind: recount.WrongBucket, Name: "billing:b", Minute: minute, Quarter: true, Stored: int128.Int{Hi: 1}, Counted: int128.Of(2), Detail: "recount again"},
		},
		Reasons: map[string]int{"no rule": 2}, Unjudged: []recount.Unjudged{{Name: "other", Reason: "no rule"}},
	}}
	s := ask(t, api.Services{Recounter: f}, api.Config{})
	s.want(t, "POST", "/v1/recount", `{"prefix":"billing:","range":"ee","repair":true,"opening":true}`, 200,
		`{"as_of":"2026-11-21T04:04:03.120000Z","findings":[{"kind":"total","counter":"billing:a","stored":-5,"counted":7,"fixed":true},`+
			`{"kind":"bucket","counter":"billing:b","time":"2026-11-25T12:00:00.000000Z","quarter":true,"stored":"18446744073709551616","counted":2,"detail":"recount again"}],`+
			`"counters":2,"buckets":3,"entries":9,"opened":4,"not_covered":{"no rule":2},"not_covered_names":[{"counter":"other","reason":"no rule"}],"done":500,"next":"ff"}`)
	if got, want := fmt.Sprintf("%+v", f.asked), fmt.Sprintf("%+v", recount.Query{Prefix: "billing:", Range: "ee", Repair: true, Open: true}); got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	f.result = recount.Result{}
	s.want(t, "POST", "/v1/recount", `{}`, 200, `"findings":[],`)
	s.want(t, "POST", "/v1/recount", `{"prefix":"`+strings.Repeat("x", 501)+`"}`, 400, "prefix")
	f.err = fmt.Errorf("%w: shard 7 of page:/a has 3 bytes", countmill.ErrUnavailable)
	s.want(t, "POST", "/v1/recount", `{}`, 503, "shard 7 of page:/a has 3 bytes: nothing of this call was done, repeat it later")
	f.err = fmt.Errorf("%w: some was corrected", countmill.ErrOutcomeUnknown)
	s.want(t, "POST", "/v1/recount", `{}`, 504, "some was corrected: repeat the call, which corrects nothing twice")
	f.err = fmt.Errorf("%w: %w: records are complete from noon", countmill.ErrUnavailable, recount.ErrEarly)
	s.want(t, "POST", "/v1/recount", `{}`, 503, "complete from noon")
	f.err = fmt.Errorf("%w: %w: it may only read", countmill.ErrUnavailable, store.ErrDeployment)
	s.want(t, "POST", "/v1/recount", `{"repair":true}`, 503, "look at the log: ")
	f.err = &countmill.FieldError{Field: "range", Problem: "is no range", Limit: "the next of an answer"}
	s.want(t, "POST", "/v1/recount", `{"range":"x"}`, 400, "range")
}
