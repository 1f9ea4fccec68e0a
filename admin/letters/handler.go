package letters

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
)

// HandlerConfig bounds requests. Its zero value works.
type HandlerConfig struct {
	// Timeout bounds one request. Default 30s.
	Timeout time.Duration
	// Logger gets what clients are not told. Default: discarded.
	Logger *slog.Logger
}

// A Handler is the HTTP half.
type Handler struct {
	letters *Letters
	cfg     HandlerConfig
}

// NewHandler returns a handler of l.
func NewHandler(l *Letters, cfg HandlerConfig) *Handler {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Handler{l, cfg}
}

// Register adds the handler's routes.
func (h *Handler) Register(rt *api.Router) {
	admin := access.Whole(access.Admin) // a letter may hold any counter
	rt.Handle(http.MethodGet, "/v1/dead-letters", admin, h.answer(h.list))
	rt.Handle(http.MethodGet, "/v1/dead-letters/{name}", admin, h.answer(h.show))
	rt.Handle(http.MethodPost, "/v1/dead-letters/replay", admin, h.answer(h.replay))
	rt.Handle(http.MethodPost, "/v1/dead-letters/discard", admin, h.answer(h.discard))
}

func (h *Handler) answer(f func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return api.Answer(h.cfg.Timeout, h.cfg.Logger, f)
}

func (h *Handler) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"limit", "page_token"}, nil)
	if err != nil {
		return nil, err
	}
	limit, err := query.Limit(defaultLimit, MaxPage)
	if err != nil {
		return nil, err
	}
	after, err := query.After(func(after string) error { return checkKey("page_token", after) })
	if err != nil {
		return nil, err
	}
	p, err := h.letters.List(r.Context(), after, limit)
	if err != nil {
		return nil, err
	}
	return pageOf(p), nil
}

func (h *Handler) show(_ http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := api.Query(r, nil, nil); err != nil {
		return nil, err
	}
	key := r.PathValue("name")
	if err := checkKey("name", key); err != nil {
		return nil, err
	}
	d, c, found, err := h.letters.Show(r.Context(), key)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, api.NewProblem(http.StatusNotFound, "not-found", "not found", "there is no such dead letter: it was counted or discarded, or never there")
	}
	return shownOf(&d, c), nil
}

// A request names letters.
type request struct {
	Keys  []string `json:"keys"`
	AsNew bool     `json:"as_new"`
}

func (h *Handler) replay(w http.ResponseWriter, r *http.Request) (any, error) {
	const want = `{"keys": [...], "as_new": false}, 1 to 100 keys`
	var asked request
	if err := readBody(w, r, &asked, want); err != nil {
		return nil, err
	}
	if err := checkKeys(asked.Keys, want); err != nil {
		return nil, err
	}
	done, err := h.letters.Replay(r.Context(), asked.Keys, asked.AsNew)
	return outcomesOf(done), err
}

func (h *Handler) discard(w http.ResponseWriter, r *http.Request) (any, error) {
	const want = `{"keys": [...]}, 1 to 100 keys`
	var asked struct {
		Keys []string `json:"keys"`
	}
	if err := readBody(w, r, &asked, want); err != nil {
		return nil, err
	}
	if err := checkKeys(asked.Keys, want); err != nil {
		return nil, err
	}
	done, err := h.letters.Discard(r.Context(), asked.Keys)
	return outcomesOf(done), err
}

func readBody(w http.ResponseWriter, r *http.Request, into any, want string) error {
	if _, err := api.Query(r, nil, nil); err != nil {
		return err
	}
	if _, err := api.ContentType(r, "application/json"); err != nil {
		return err
	}
	body, err := api.BodyReader{Max: 64 << 10, Timeout: 10 * time.Second}.Read(w, r, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		return &countmill.FieldError{Field: "body", Problem: "is not what this call takes", Limit: want}
	}
	return nil
}

func checkKeys(keys []string, want string) error {
	if len(keys) == 0 || len(keys) > MaxKeys {
		return &countmill.FieldError{Field: "keys", Problem: fmt.Sprintf("holds %d keys", len(keys)), Limit: want}
	}
	for i, key := range keys {
		if err := checkKey("keys", key); err != nil {
			p := api.AsProblem(err)
			p.Index = &i
			return p
		}
	}
	return nil
}

// checkKey refuses what is no letter's key: those are one path segment, of any version.
func checkKey(field, key string) error {
	plain := func(c rune) bool { return c > ' ' && c < 0x7f && c != '/' && c != '%' }
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return !plain(c) }) {
		return &countmill.FieldError{Field: field, Problem: "is no key of a dead letter", Limit: "as GET /v1/dead-letters has it"}
	}
	return nil
}

const defaultLimit = 100
