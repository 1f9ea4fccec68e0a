package datastore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/auth/credentials"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
)

// The checks of an examination.
const (
	checkReached    = "reachability of the database"
	checkMeta       = "meta record"
	checkTransforms = "transforms"
	checkRights     = "permissions of the database"
	checkMode       = "database mode"
	checkTTL        = "TTL policy"
)

// An Exam says how to examine a database. With ReadOnly the account may be that of a reader, which needs
// no right to write.
type Exam struct {
	Config
	// Admin is the address of the Firestore admin API. Default Google's; none for an emulator.
	Admin string
	// NowFunc is this machine's clock. Default time.Now.
	NowFunc func() time.Time
}

const (
	googleAdmin = "https://firestore.googleapis.com"
	// examTimeout bounds each call of an examination.
	examTimeout = 10 * time.Second
	// mostAdmin is the most bytes of an answer of the admin API.
	mostAdmin = 1 << 20
)

// Examine looks for mistakes of the database and of the rights of this process. It makes no meta
// record. It increments 26 entities of its own, and removes them.
func Examine(ctx context.Context, e Exam, r *backend.Report) {
	e.Config = e.withDefaults()
	e.Create = false
	if e.NowFunc == nil {
		e.NowFunc = time.Now
	}
	d, err := dialed(ctx, e.Config, protocol.Kinds, credentials.DetectDefault)
	if err != nil {
		e.find(checkReached, err, "Nothing of the database could be examined.", r)
		return
	}
	defer func() { _ = d.Close() }()
	if e.meta(ctx, d, r) {
		e.transforms(ctx, d, r)
		e.admin(ctx, r)
	}
}

func (e Exam) find(check string, err error, why string, r *backend.Report) {
	do := "Look at the address in --store, at the network, and at the status of the service."
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		check, do = checkRights, "Grant roles/datastore.user to the service account of an aggregator, and roles/datastore.viewer to that of a reader."
	case codes.NotFound:
		do = "Make the database, or fix its name in --store."
	}
	r.Find(backend.Finding{Check: check, What: err.Error() + ".", Why: why, Do: do, Page: "howto/google-cloud.md"})
}

// meta looks the meta record up. It returns false if the rest cannot be examined.
func (e Exam) meta(ctx context.Context, d *database, r *backend.Report) bool {
	ctx, cancel := context.WithTimeout(ctx, examTimeout)
	defer cancel()
	began := e.NowFunc()
	v := d.View()
	_, err := v.Get(ctx, nil)
	took, at := e.NowFunc().Sub(began), v.At()
	if err != nil && (!errors.Is(err, engine.ErrDeployment) || status.Code(err) != codes.OK && status.Code(err) != codes.Unknown) {
		e.find(checkReached, err, "No role that has the store can work.", r)
		return false
	}
	r.Done(checkReached, "")
	if at.IsZero() { // no role takes a server that does not say when it read
		unsuitable(err, r)
		return false
	}
	r.Clock(at.Sub(began.Add(took/2)), took/2)
	switch _, err = protocol.Open(ctx, d, protocol.Config{}); {
	case err != nil && (e.Emulator == "" || !errors.Is(err, protocol.ErrUnused)):
		r.Find(backend.Finding{Check: checkMeta, What: err.Error() + ".", Why: "Roles refuse this database.",
			Do: "Start the first aggregator of a new database once with --create, or name another database or namespace in --store.", Page: "howto/google-cloud.md"})
	default:
		r.Done(checkMeta, "")
	}
	return true
}

func (e Exam) transforms(ctx context.Context, d *database, r *backend.Report) {
	ctx, cancel := context.WithTimeout(ctx, examTimeout)
	defer cancel()
	switch err := d.probe(ctx); {
	case err == nil:
		r.Done(checkTransforms, "")
		r.Done(checkRights, "")
	case e.ReadOnly && status.Code(err) == codes.PermissionDenied:
		r.Skip(checkTransforms, "this account may not write, and a reader need not; for an aggregator give its --bus too")
		r.Done(checkRights, "may read, not write")
	case errors.Is(err, engine.ErrDeployment) && status.Code(err) != codes.PermissionDenied && status.Code(err) != codes.Unauthenticated:
		unsuitable(err, r)
	default:
		e.find(checkTransforms, err, "An aggregator with these rights cannot fold.", r)
	}
}

// unsuitable is about a server on which folds would not work.
func unsuitable(err error, r *backend.Report) {
	r.Find(backend.Finding{Check: checkTransforms, What: err.Error() + ".", Why: "Roles refuse it, because folds would not count right.",
		Do: "Use Firestore in Datastore mode, or its emulator.", Page: "howto/google-cloud.md"})
}

// admin asks the admin API for the mode and the TTL policies.
func (e Exam) admin(ctx context.Context, r *backend.Report) {
	if e.Emulator != "" && e.Admin == "" {
		r.Skip(checkMode, "an emulator has no admin API")
		r.Skip(checkTTL, "an emulator has no admin API")
		return
	}
	name := "/v1/projects/" + url.PathEscape(e.Project) + "/databases/" + url.PathEscape(cmp.Or(e.Database, "(default)"))
	var database struct{ Type, ConcurrencyMode string }
	if code, err := e.ask(ctx, name, &database); err != nil {
		r.Skip(checkMode, adminError(code, err))
	} else {
		e.mode(database.Type, database.ConcurrencyMode, r)
	}
	e.policies(ctx, name, r)
}

// policies examines the TTL policy of each kind whose rows expire.
func (e Exam) policies(ctx context.Context, database string, r *backend.Report) {
	var states []string
	for i := range protocol.Kinds {
		if !protocol.Kinds[i].Expires {
			continue
		}
		kind := kindName(&protocol.Kinds[i])
		var field struct{ TTLConfig *struct{ State string } }
		code, err := e.ask(ctx, database+"/collectionGroups/"+kind+"/fields/"+expiresProperty, &field)
		if err != nil && code != http.StatusNotFound {
			r.Skip(checkTTL, adminError(code, err))
			return
		}
		state := "none"
		if field.TTLConfig != nil {
			state = field.TTLConfig.State
		}
		if states = append(states, state); state == "ACTIVE" || state == "CREATING" {
			continue
		}
		r.Find(backend.Finding{
			Check: checkTTL, What: fmt.Sprintf("The TTL policy on %s of %s is: %s.", expiresProperty, kind, state),
			Why: "Nothing removes its entities when their time is over, and storage grows.",
			Do: fmt.Sprintf("gcloud firestore fields ttls update %s --project=%s --database='%s' --collection-group=%s --enable-ttl",
				expiresProperty, e.Project, cmp.Or(e.Database, "(default)"), kind),
			Page: "howto/google-cloud.md",
		})
	}
	slices.Sort(states)
	r.Done(checkTTL, strings.Join(slices.Compact(states), ", "))
}

func (e Exam) mode(kind, concurrency string, r *backend.Report) {
	r.Done(checkMode, kind+" "+concurrency)
	if kind == "DATASTORE_MODE" && concurrency == "PESSIMISTIC" {
		return
	}
	r.Find(backend.Finding{
		Check: checkMode, What: fmt.Sprintf("%s is a database of type %s with the concurrency mode %s.", e, kind, concurrency),
		Why: "countmill relies on Datastore mode and PESSIMISTIC. In other modes commits conflict more often, or fail.",
		Do:  "Set the concurrency mode to PESSIMISTIC. A database of another type must be made anew.", Page: "howto/google-cloud.md",
	})
}

func adminError(code int, err error) string {
	if code == http.StatusForbidden {
		return "this account may not look; grant roles/datastore.viewer"
	}
	return err.Error()
}

// ask gets a resource of the admin API. code is the HTTP status, or 0.
func (e Exam) ask(ctx context.Context, path string, to any) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, examTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cmp.Or(e.Admin, googleAdmin)+path, nil)
	if err != nil {
		return 0, err
	}
	if e.Emulator == "" {
		creds, err := findCredentials(ctx, credentials.DetectDefault)
		if err != nil {
			return 0, err
		}
		token, err := creds.Token(ctx)
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+token.Value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, mostAdmin))
	switch {
	case err != nil:
		return res.StatusCode, err
	case res.StatusCode != http.StatusOK:
		return res.StatusCode, fmt.Errorf("the admin API answered %s", res.Status)
	}
	return res.StatusCode, json.Unmarshal(text, to)
}
