package verify

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/store"
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
	verifier *Verifier
	cfg      HandlerConfig
}

// NewHandler returns a handler of v.
func NewHandler(v *Verifier, cfg HandlerConfig) *Handler {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Handler{v, cfg}
}

// Register adds the handler's routes.
func (h *Handler) Register(rt *api.Router) {
	admin := access.Whole(access.Admin) // a page has whatever counters there are
	rt.Handle(http.MethodGet, "/v1/shards", access.PerCounter(access.Read), h.answer(h.shards))
	rt.Handle(http.MethodGet, "/v1/verify", admin, h.answer(h.verify))
	rt.Handle(http.MethodPost, "/v1/verify", admin, h.answer(h.fix))
}

func (h *Handler) answer(f func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return api.Answer(h.cfg.Timeout, h.cfg.Logger, f)
}

func (h *Handler) shards(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"counter"}, nil)
	if err != nil {
		return nil, err
	}
	counter := query.Get("counter")
	if err := countmill.CheckCounter(counter); err != nil {
		return nil, err
	}
	if err := access.From(r.Context()).Check(counter); err != nil {
		return nil, err
	}
	page, err := h.verifier.ShardsOf(r.Context(), counter)
	if err != nil {
		return nil, err
	}
	return shardsOf(counter, page), nil
}

func (h *Handler) verify(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"prefix", "limit", "page_token"}, nil)
	if err != nil {
		return nil, err
	}
	limit, err := query.Limit(store.MaxSurveyPage, store.MaxSurveyPage)
	if err != nil {
		return nil, err
	}
	if query.Has("page_token") && query.Get("page_token") == "" {
		return nil, errToken
	}
	return h.page(r, request{query.Get("prefix"), query.Get("page_token"), limit}, false)
}

// A request names a page.
type request struct {
	Prefix    string `json:"prefix"`
	PageToken string `json:"page_token"`
	Limit     int    `json:"limit"`
}

func (h *Handler) fix(w http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := api.Query(r, nil, nil); err != nil {
		return nil, err
	}
	if _, err := api.ContentType(r, "application/json"); err != nil {
		return nil, err
	}
	body, err := api.BodyReader{Max: 64 << 10, Timeout: 10 * time.Second}.Read(w, r, nil)
	if err != nil {
		return nil, err
	}
	asked := request{Limit: store.MaxSurveyPage}
	if err := json.Unmarshal(body, &asked, json.RejectUnknownMembers(true)); err != nil {
		return nil, &countmill.FieldError{Field: "body", Problem: "is not what this call takes", Limit: `{"prefix": "", "limit": 1000, "page_token": ""}`}
	}
	if asked.Limit < 1 || asked.Limit > store.MaxSurveyPage {
		return nil, errLimit
	}
	return h.page(r, asked, true)
}

func (h *Handler) page(r *http.Request, asked request, fix bool) (any, error) {
	if len(asked.Prefix) > countmill.MaxCounterName || !utf8.ValidString(asked.Prefix) {
		return nil, &countmill.FieldError{Field: "prefix", Problem: "is no beginning of a name", Limit: "0 to 500 bytes of valid UTF-8"}
	}
	from := ""
	if asked.PageToken != "" {
		var err error
		if from, err = api.ParsePageToken(asked.PageToken, func(string) error { return nil }); err != nil {
			return nil, errToken
		}
	}
	result, err := h.verifier.Page(r.Context(), asked.Prefix, from, asked.Limit, fix)
	if err != nil {
		return nil, err
	}
	return resultOf(result), nil
}

var errLimit = &countmill.FieldError{Field: "limit", Problem: "is not a number in range", Limit: "1 to " + strconv.Itoa(store.MaxSurveyPage)}
