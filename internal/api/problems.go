package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/sequence"
	"github.com/countmill/countmill/store"
)

// When a client may ask again for a group that is being built, or deleted: then there is a total, or the group
// does not exist. And when a process that the store refuses may be asked again: a person has to act. Guesses.
const (
	retryBuilding = 5 * time.Second
	retryDeleting = time.Minute
	refusedPause  = time.Minute
)

// asProblem returns the error of a route as a problem if it can say more than package countmill's errors do. A context that
// ended leaves a change maybe done, and anything else undone.
func (a *API) asProblem(c call, err error) error {
	if ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled); ended && httpserver.IsInternal(err) {
		meaning := countmill.ErrUnavailable
		if _, changes := c.to.fails[http.StatusGatewayTimeout]; changes {
			meaning = countmill.ErrOutcomeUnknown
		}
		err = fmt.Errorf("%w: %w", meaning, err)
	}
	if building, ok := errors.AsType[*reader.NotServingError](err); ok {
		return a.notServing(c, building)
	}
	_, series := errors.AsType[*reader.NoSeriesError](err)
	if _, window := errors.AsType[*reader.NoWindowError](err); series || window {
		return httpserver.NewProblem(http.StatusNotFound, "no-series", "no series", err.Error())
	}
	if none, ok := errors.AsType[*reader.NoIndexError](err); ok {
		return httpserver.NewProblem(http.StatusNotFound, "no-index", "no index", none.Error())
	}
	if lower, ok := errors.AsType[*admin.LowerError](err); ok {
		return about(httpserver.NewProblem(http.StatusConflict, "lower", "never lowered", lower.Error()), "shards", fmt.Sprintf("%d to %d", lower.Named, countmill.MaxShards))
	}
	switch {
	case errors.Is(err, countmill.ErrOutcomeUnknown):
		return maybeDone(c.to, err)
	case errors.Is(err, store.ErrNoIndex):
		return httpserver.NewProblem(http.StatusNotFound, "no-index", "no index", err.Error())
	case errors.Is(err, store.ErrNoRule):
		return httpserver.NewProblem(http.StatusNotFound, "no-rule", "no rule", err.Error())
	case errors.Is(err, reader.ErrNoBoards):
		return httpserver.NewProblem(http.StatusConflict, "no-boards", "no boards", err.Error())
	case errors.Is(err, publisher.ErrClockSkew):
		return about(httpserver.NewProblem(http.StatusBadRequest, "clock-skew", "clock skew", err.Error()+": nothing of this batch was done; compare the clocks of sender and receiver"), "time", "")
	case errors.Is(err, publisher.ErrOtherPrincipal):
		return about(httpserver.NewProblem(http.StatusForbidden, "forbidden", "forbidden", err.Error()+": nothing was done"), "principal", "")
	case errors.Is(err, store.ErrDeployment) && c.to.need.Scope() != auth.Read:
		return a.refused(c, err)
	case errors.Is(err, countmill.ErrConflict) && c.to.role == onSequences:
		limit := ""
		if other, ok := errors.AsType[*sequence.CountError](err); ok {
			limit = strconv.Itoa(other.Given)
		}
		return about(httpserver.NewProblem(http.StatusConflict, "other-count", "another count", err.Error()), "count", limit)
	case c.to.role == onReader:
		return sayWhichCounter(err)
	case c.to.counts:
		return notThisTime(err)
	}
	return err
}

// notThisTime adds to a refusal of increments that an earlier request may have had the same key or ids.
func notThisTime(err error) error {
	p := *httpserver.AsProblem(err)
	if p.Status != http.StatusTooManyRequests && p.Status != http.StatusServiceUnavailable {
		return err
	}
	p.Detail += "; an earlier one with the same key or ids may be counted"
	return &p
}

// refused is about a store that a person has to change. The log has the error once a minute; callers with all rights see it.
func (a *API) refused(c call, err error) error {
	now, last := time.Now().UnixNano(), a.told.Load()
	if now-last >= int64(refusedPause) && a.told.CompareAndSwap(last, now) {
		a.cfg.Logger.LogAttrs(c.ctx, slog.LevelWarn, "the store refuses this process", slog.String("op", c.to.op), slog.String("err", auth.Redact(err.Error())))
	}
	text := "the store refuses this process (rights, configuration or disk): nothing of this request was done; ask an aggregator, or look at the log"
	if c.to.need == auth.Whole(auth.Admin) {
		text += ": " + err.Error()
	}
	return httpserver.NewProblem(http.StatusServiceUnavailable, "unavailable", "unavailable", text).RetryAfter(refusedPause)
}

// about is a problem of a field.
func about(p *httpserver.Problem, field, limit string) *httpserver.Problem {
	p.Field, p.Limit = field, limit
	return p
}

// notServing is a conflict with the state of an index, which ends by itself, and no fault of the
// process: a 503 would make proxies stop asking it. It says how far the index is, if the caller may read
// all its counters. Strangers, who see badges, do not learn it, nor do streams: they would ask again and again.
func (a *API) notServing(c call, err *reader.NotServingError) error {
	p := httpserver.NewProblem(http.StatusConflict, "not-serving", "not serving", err.Error()).RetryAfter(retryBuilding)
	if err.Deleting {
		p.RetryAfter(retryDeleting)
	}
	if a.services.Admin == nil || c.to.need.ForAnyone() || c.to.op == "watchTotals" {
		return p
	}
	give, busy := a.pools.take(contents, sharesAs(c), 1)
	if busy != nil {
		return p
	}
	defer give()
	if x, err := a.services.Admin.Index(c.ctx, err.Index); err == nil && x.Ranges > 0 && c.caller().May(x.Prefix()) {
		p.Progress = &httpserver.Progress{Ranges: x.Ranges, Done: x.Done}
	}
	return p
}

// maybeDone says how to repeat a request whose outcome is unknown.
func maybeDone(to *route, err error) error {
	p := httpserver.AsProblem(err)
	switch {
	case to.counts: // as p says
	case to.op == "nextValues":
		p.Detail = "values were maybe given: repeat the request with the same id; without an id they are a gap"
	default:
		p.Detail = "this was maybe done: repeat it, a reset only with the same id"
	}
	return p
}

// sayWhichCounter puts the position of a bad name into words: the reader's error counts
// increments.
func sayWhichCounter(err error) error {
	field, ok := errors.AsType[*countmill.FieldError](err)
	if !ok || field.Index == nil {
		return err
	}
	plain := *field
	plain.Index = nil
	p := httpserver.AsProblem(&plain)
	p.Detail = fmt.Sprintf("counter %d (from 0): %s", *field.Index, plain.Error())
	p.Index = field.Index
	return p
}
