package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/store"
)

// An Admin looks after counters. *admin.Admin is one; its methods have the promises.
type Admin interface {
	Grow(ctx context.Context, counter string, shards int) error
	Reset(ctx context.Context, counter, id string) (store.ResetResult, error)
	Delete(ctx context.Context, counter string) (store.ResetResult, error)
}

// Config bounds requests. Its zero value works.
type Config struct {
	// BodyTimeout is how long a request's body may take to arrive. Default 10s.
	BodyTimeout time.Duration

	// Logger gets what clients are not told. Default: discarded.
	Logger *slog.Logger
}

// A Handler answers requests that change counters.
type Handler struct {
	admin Admin
	cfg   Config
}

// New returns a handler of what a does.
func New(a Admin, cfg Config) *Handler {
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, 10*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Handler{a, cfg}
}

// Register adds the handler's routes to a router that serves others too.
func (h *Handler) Register(rt *api.Router) {
	change := access.PerCounter(access.Admin)
	rt.Handle(http.MethodPatch, "/v1/counters/{name}", change, h.answer(h.grow))
	rt.Handle(http.MethodDelete, "/v1/counters/{name}", change, h.answer(h.delete))
	rt.Handle(http.MethodPost, "/v1/reset", change, h.answer(h.reset))
}

// answer makes a handler of a function that returns what to answer with.
func (h *Handler) answer(f func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(w, r)
		if err != nil {
			api.WriteError(w, r, h.cfg.Logger, asProblem(err))
			return
		}
		api.WriteJSON(w, http.StatusOK, v)
	})
}

// asProblem says what a program cannot know from package countmill's errors.
func asProblem(err error) error {
	if lower, ok := errors.AsType[*admin.LowerError](err); ok {
		p := api.NewProblem(http.StatusConflict, "lower", "never lowered", lower.Error())
		p.Field, p.Limit = "shards", fmt.Sprintf("%d to %d", lower.Named, countmill.MaxShards)
		return p
	}
	if errors.Is(err, countmill.ErrOutcomeUnknown) {
		p := api.AsProblem(err)
		p.Detail = "this was maybe done: repeat it, a reset only with the same id"
		return p
	}
	return err
}

// A raised counter as clients see it.
type grown struct {
	Counter string `json:"counter"`
	Shards  int    `json:"shards"`
}

func (h *Handler) grow(w http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := api.Query(r, nil, nil); err != nil {
		return nil, err
	}
	var request struct {
		Shards integer `json:"shards"`
	}
	if err := h.read(w, r, &request, wantGrow); err != nil {
		return nil, err
	}
	if !request.Shards.given {
		return nil, &countmill.FieldError{Field: "shards", Problem: "is missing", Limit: wantShards}
	}
	name, shards := r.PathValue("name"), request.Shards.value
	if err := access.From(r.Context()).Check(name); err != nil {
		return nil, err
	}
	return grown{name, shards}, h.admin.Grow(r.Context(), name, shards)
}

// What a reset or a delete has done, as clients see it.
type done struct {
	Counter string `json:"counter"`
	Removed number `json:"removed"`
	AsOf    string `json:"as_of"`
}

func doneOf(counter string, d store.ResetResult, asString bool) done {
	return done{counter, number{d.Removed, asString}, api.FormatTime(d.At)}
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

func (h *Handler) delete(_ http.ResponseWriter, r *http.Request) (any, error) {
	asString, err := format(r)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	if err := access.From(r.Context()).Check(name); err != nil {
		return nil, err
	}
	d, err := h.admin.Delete(r.Context(), name)
	return doneOf(name, d, asString), err
}

func (h *Handler) reset(w http.ResponseWriter, r *http.Request) (any, error) {
	asString, err := format(r)
	if err != nil {
		return nil, err
	}
	var request struct {
		Counter text `json:"counter"`
		ID      text `json:"id"`
	}
	if err := h.read(w, r, &request, wantReset); err != nil {
		return nil, err
	}
	if !request.Counter.given {
		return nil, &countmill.FieldError{Field: "counter", Problem: "is missing", Limit: "1 to 500 bytes"}
	}
	if request.ID.given {
		if err := countmill.CheckID("id", request.ID.value); err != nil {
			return nil, err
		}
	}
	name := request.Counter.value
	if err := access.From(r.Context()).Check(name); err != nil {
		return nil, err
	}
	d, err := h.admin.Reset(r.Context(), name, request.ID.value)
	return doneOf(name, d, asString), err
}

// format reports whether numbers are to be strings.
func format(r *http.Request) (asString bool, _ error) {
	query, err := api.Query(r, []string{"format"}, nil)
	if err != nil || !query.Has("format") {
		return false, err
	}
	switch query.Get("format") {
	case "number":
		return false, nil
	case "string":
		return true, nil
	}
	return false, &countmill.FieldError{Field: "format", Problem: "is not known", Limit: "number, string"}
}
