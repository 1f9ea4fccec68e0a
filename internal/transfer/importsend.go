package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

// sendBlock returns when all good rows of a block are accepted.
func (im *importer) sendBlock(ctx context.Context, b *Block) error {
	key := im.key(b.Number)
	body, n := b.Keyed(im.state.Began)
	if err := im.sendRows(ctx, b, key, body, n); err != nil {
		return err
	}
	body, n = b.Identified(im.state.Began)
	if err := im.sendRows(ctx, b, "", body, n); err != nil {
		return err
	}
	im.progress.Add(int64(b.Size), int64(b.Rows))
	return nil
}

// key names the block for ever: it is of the file's bytes and form. The hash of the form keeps two imports of one file
// apart which count different columns, or cut it differently.
func (im *importer) key(number int) string {
	form := sha256.Sum256([]byte(im.state.Form))
	return fmt.Sprintf("import-%d:%s:%x:%d", Cut, im.done.SHA256, form[:8], number)
}

// sendRows sends one request, and the same request again while that may help.
func (im *importer) sendRows(ctx context.Context, b *Block, key string, body []byte, n int) error {
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, im.Timeout)
	defer cancel()
	var query url.Values
	if !b.At.IsZero() {
		query = url.Values{"at": {b.At.UTC().Format(time.RFC3339)}}
	}
	answer, err := im.Client.Do(ctx, client.Request{
		Method: http.MethodPost, Path: "/v1/increments", Query: query, Body: body, ContentType: "application/x-ndjson", Key: key,
		Safe: true, OnRetry: func(err error) { im.progress.Wait(err.Error()) },
	})
	if err == nil {
		err = checkAccepted(answer, n)
	}
	if left, ok := errors.AsType[*countmill.ConflictsError](err); ok && key == "" {
		err = im.dropReused(b, left.Conflicts)
		n -= len(left.Conflicts)
	}
	if err == nil {
		im.accepted.Add(int64(n))
		return nil
	}
	unknown := errors.Is(err, countmill.ErrOutcomeUnknown)
	if unknown || errors.Is(err, errNoCountmill) {
		im.maybe.Store(true)
	}
	if unknown || errors.Is(err, countmill.ErrUnavailable) || errors.Is(err, countmill.ErrOverloaded) {
		return fmt.Errorf("the request of %s was not accepted within --timeout %s: %w", b.lines(), im.Timeout, err)
	}
	return fmt.Errorf("the request of %s was refused: %w", b.lines(), err)
}

// dropReused notes the rows of a block that were not counted, because other deltas were counted under
// their ids. All others of the request were.
func (im *importer) dropReused(b *Block, conflicts []countmill.Conflict) error {
	sent := b.WithIDs()
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, c := range conflicts {
		if c.Position < 0 || c.Position >= len(sent) {
			return errNoCountmill
		}
		im.done.Conflicts++
		if inc := sent[c.Position]; len(im.done.Reused) < BadShown {
			im.done.Reused = append(im.done.Reused, fmt.Sprintf("counter %q, id %q", inc.Counter, inc.ID))
		}
	}
	return nil
}

var errNoCountmill = errors.New("the server answered with something else than what it accepted; is that a countmill?")

func checkAccepted(answer []byte, n int) error {
	var got struct {
		Accepted *int `json:"accepted"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Accepted == nil || *got.Accepted != n {
		return errNoCountmill
	}
	return nil
}
