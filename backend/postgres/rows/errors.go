package rows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/countmill/countmill/store/engine"
)

// answers are the errors of statements before COMMIT after which PostgreSQL has surely rolled back. After any other error,
// a lost connection or a shutdown, the outcome is open. Also after 08P01: PgBouncer answers it when the server is gone.
var answers = map[string]error{
	"25006": engine.ErrNotApplied, // a standby, or a read-only transaction
	"40001": engine.ErrNotApplied, // serialisation
	"40P01": engine.ErrNotApplied, // deadlock
	"55P03": engine.ErrNotApplied, // lock time-out
	"57014": engine.ErrNotApplied, // statement time-out
	"53200": engine.ErrNotApplied, // memory
	"53300": engine.ErrNotApplied, // too many connections
	"57P03": engine.ErrNotApplied, // it starts, or is a standby that is not ready
	"53100": engine.ErrDeployment, // disk full
	"42501": engine.ErrDeployment, // rights
	"42P01": engine.ErrDeployment, // no table
	"42703": engine.ErrDeployment, // no column
	"3F000": engine.ErrDeployment, // no schema
	"3D000": engine.ErrDeployment, // no database
	"28000": engine.ErrDeployment, // the role
	"28P01": engine.ErrDeployment, // the password
	"22003": engine.ErrRefused,    // a number is out of range
	"22021": engine.ErrRefused,    // a name is not text
	"22P05": engine.ErrRefused,
	"54000": engine.ErrRefused, // a key is too long for an index
}

// refusal returns the error of a call that ended at a statement before its COMMIT.
func refusal(err error, meant error) error {
	if pg := new(pgconn.PgError); errors.As(err, &pg) {
		answer := answers[pg.Code]
		if pg.Code == "22012" || pg.Code == "23505" {
			answer = meant
		}
		if answer != nil {
			return fmt.Errorf("%w: postgres: %w", answer, OneLine(err))
		}
	}
	return fmt.Errorf("postgres: %w", OneLine(err))
}

// notSent is the error of a call that could not begin.
func notSent(err error) error {
	answer := engine.ErrNotApplied
	if pg := new(pgconn.PgError); errors.As(err, &pg) {
		answer = cmp.Or(answers[pg.Code], answer)
	}
	return fmt.Errorf("%w: postgres: %w", answer, OneLine(err))
}

// OneLine returns an error whose text has no line twice, and no line breaks: of a connection that failed there is a line for each address,
// with and without TLS.
func OneLine(err error) error { return oneLine{err} }

type oneLine struct{ error }

func (e oneLine) Error() string {
	return strings.Join(slices.Compact(strings.Split(strings.ReplaceAll(e.error.Error(), "\n\t", "\n"), "\n")), " ")
}

func (e oneLine) Unwrap() error { return e.error }
