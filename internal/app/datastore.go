//go:build !nogoogle

package app

import (
	"context"
	"strings"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/datastore"
	"github.com/countmill/countmill/store"
)

// datastoreStore keeps counters in Google's Firestore in Datastore mode.
func datastoreStore() backend.Store {
	return backend.Store{
		Scheme: "datastore", Usage: "datastore://PROJECT[/DATABASE][?namespace=NS]", Params: []string{"namespace"},
		Check: func(u backend.URL) error {
			_, _, err := database(u)
			return err
		},
		Open: func(ctx context.Context, u backend.URL, c backend.StoreConfig) (store.Store, error) {
			project, name, err := database(u)
			if err != nil {
				return nil, err
			}
			s, err := datastore.Open(ctx, datastore.Config{
				Project: project, Database: name, Namespace: u.Params.Get("namespace"),
				Window: c.Window, ReadOnly: c.ReadOnly, Create: c.Create, Logger: c.Logger,
			})
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Examine: func(ctx context.Context, u backend.URL, c backend.StoreConfig, r *backend.Report) {
			if project, name, err := database(u); err == nil { // Check has refused others
				cfg := datastore.Config{Project: project, Database: name, Namespace: u.Params.Get("namespace"), ReadOnly: c.ReadOnly}
				datastore.Examine(ctx, datastore.Exam{Config: cfg}, r)
			}
		},
	}
}

// database is the project and the database, empty for the project's default one.
func database(u backend.URL) (project, name string, err error) {
	pieces, err := u.Path(1, 2, "datastore://PROJECT[/DATABASE]")
	if err != nil {
		return "", "", err
	}
	return pieces[0], strings.Join(pieces[1:], ""), nil
}
