package app

import (
	"context"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/postgres"
	"github.com/countmill/countmill/store"
)

// postgresStore keeps counters in a schema of PostgreSQL. A password has no place in the parameters: libpq's variables and files
// have it, or the part of the URL before the @, which no message shows.
func postgresStore() backend.Store {
	return backend.Store{
		Scheme: "postgres", Usage: "postgres://[USER@]HOST[:PORT]/DATABASE[?schema=NAME]", Params: postgres.Params, FreeReads: true,
		Check: func(u backend.URL) error { return postgres.CheckURL(u.Text) },
		Open: func(ctx context.Context, u backend.URL, c backend.StoreConfig) (store.Store, error) {
			s, err := postgres.Open(ctx, postgres.Config{URL: u.Text, Window: c.Window, ReadOnly: c.ReadOnly, Create: c.Create, Logger: c.Logger})
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Examine: func(ctx context.Context, u backend.URL, c backend.StoreConfig, r *backend.Report) {
			postgres.Examine(ctx, postgres.Exam{Config: postgres.Config{URL: u.Text, ReadOnly: c.ReadOnly}}, r)
		},
	}
}
