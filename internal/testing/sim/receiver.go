package sim

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A receiverNetwork is the network between a publisher outside and the batch receiver of `up`, or of a process that has
// the bus. It loses requests and
// answers, repeats requests, and delays everything. httpbus and publisher.BatchReceiver are the real ones; the
// route between them is missing.
type receiverNetwork struct {
	*World
	p     *proc
	n     int
	taken bool // an answer refused merged increments; guarded by kernel.mu
}

// drawRemotes draws publishers outside, for half of the schedules with `up` that have no crowd or contest,
// and an eighth of those with roles apart.
func (pl *plan) drawRemotes() {
	rng := pl.rng
	if pl.crowd != nil || pl.contest != nil || rng.IntN(2) == 0 || !pl.embedded && rng.IntN(4) > 0 {
		return
	}
	if pl.outside = !pl.embedded; pl.outside {
		pl.rates[TwoVersions] = 0 // a batch receiver of another version writes a batch in other bytes
	} else {
		pl.remotes = 1 + rng.IntN(2)
	}
	for _, f := range []Fault{RequestLost, AnswerLost, RequestTwice, IDsTaken} {
		pl.rates[f] = []float64{0, 0.1, 0.3}[rng.IntN(3)]
	}
}

// busOf is the bus of a publisher: the broker, or a batch receiver to it.
func (ps *processes) busOf(p *proc) publisher.Bus {
	if !ps.embedded && !ps.outside || p.role == node {
		return &bus{ps.bus, p}
	}
	d := &receiverNetwork{World: ps.World, p: p}
	// The receiverNetwork has its own time-outs: no two end at the same instant.
	return must(httpbus.Open("http://up", httpbus.WithTimeout(1000*time.Hour), httpbus.WithHTTPClient(&http.Client{Transport: d})))
}

// A passage is a request on its way.
type passage struct {
	payload []byte
	answer  chan *http.Response // room for one; nil for a connection that broke
	limit   time.Duration
}

// RoundTrip carries a request there and the answer back.
func (d *receiverNetwork) RoundTrip(r *http.Request) (res *http.Response, err error) {
	payload, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_ = r.Body.Close()
	pass := &passage{payload: payload, answer: make(chan *http.Response, 1)}
	key := xxhash.Sum64(payload)
	if !d.park(&step{p: d.p, op: "post", key: key, ctx: r.Context(), run: func(f callEnd) { err = d.leave(pass, f) },
		asks: func() string { return payloadText(payload) }, gets: func() string { return answerText(err, nil) }}) {
		return nil, errFenced
	}
	if err != nil {
		return nil, err
	}
	late := time.NewTimer(pass.limit)
	defer late.Stop()
	select {
	case res = <-pass.answer:
	case <-late.C:
	case <-r.Context().Done():
	}
	// The answer waits for its turn, too.
	if !d.park(&step{p: d.p, op: "answer", key: key, run: func(f callEnd) {
		if d.isTaken() {
			d.violate("increments of %s were refused, because another sender had taken their ids", d.p.name)
		}
		if f != released || res == nil || d.strikes(AnswerLost) {
			err = errLost
		}
	}, gets: func() string { return answerText(err, nil) }}) || err != nil {
		return nil, errLost
	}
	return res, nil
}

// leave sends a request off, or loses it. A request whose sender has gone may still arrive.
func (d *receiverNetwork) leave(pass *passage, f callEnd) error {
	d.n++
	pass.limit = d.shape.timeout + time.Duration(1000*d.p.n+d.n)*17
	arrive := func() error { d.arrive(pass); return nil }
	switch {
	case f != released:
		d.maybe(arrive)
		return errLost
	case d.strikes(RequestLost):
		return errLost
	case d.strikes(RequestTwice):
		d.later(func() error {
			d.arrive(&passage{payload: pass.payload, answer: make(chan *http.Response, 1)})
			return nil
		})
	}
	return arrive()
}

// arrive lets a batch receiver take a request in. If no process listens, the connection breaks. With roles apart
// the readers are batch receivers: a batch receiver has nothing of its own, so any process will do.
func (d *receiverNetwork) arrive(pass *passage) {
	lives := d.procs.lives(reading)
	if len(lives) == 0 {
		pass.answer <- nil
		return
	}
	q := lives[0]
	d.running.Add(1)
	d.procs.atRemotes.Add(1)
	hostile := d.strikes(IDsTaken)
	d.spawn(q, func() {
		defer d.running.Done()
		defer d.procs.atRemotes.Add(-1)
		if hostile {
			d.take(q, pass.payload)
		}
		pass.answer <- d.serve(q, pass.payload)
	})
}

// serve is the route of `up`: the checks of the caller are missing. Clocks of sender and receiver are
// the same here, or a batch would be held for ever.
func (d *receiverNetwork) serve(q *proc, payload []byte) *http.Response {
	b, err := wire.Decode(payload)
	if err != nil {
		d.violate("a batch cannot be read: %v", err)
		return nil
	}
	now := b.Time
	for i := range b.Parts {
		if at := b.Parts[i].Time; at.After(now) {
			now = at
		}
	}
	in, _, err := publisher.OpenBatch(payload, publisher.Sender{Limited: true}, now, store.MaxWindow)
	if err != nil {
		d.violate("a batch is refused: %v", err)
		return nil
	}
	out, err := publisher.NewBatchReceiver(&bus{d.bus, q}, "", wire.DatabaseTag{}).Send(background, in, now)
	if err != nil {
		return response(http.StatusGatewayTimeout, struct{}{})
	}
	d.checkTaken(b, out.Reused)
	type conflict struct {
		Part int `json:"part"`
	}
	var conflicts []conflict
	for _, part := range append(out.Reused, out.Expired...) {
		conflicts = append(conflicts, conflict{part})
	}
	answer := map[string]any{"parts": out.Parts, "conflicts": conflicts}
	if out.Sent.Counted {
		answer["counted_as_of"] = d.db.moment()
	}
	if r := out.Sent.Receipt; !r.IsZero() {
		answer["receipt"] = r.String()
	}
	return response(http.StatusAccepted, answer)
}

// take sends other increments under the ids of a batch's merged increments, and under its flush, as
// another limited token does that has seen the batch.
func (d *receiverNetwork) take(q *proc, payload []byte) {
	b, err := wire.Decode(payload)
	if err != nil {
		return
	}
	var parts []wire.Part
	for _, p := range b.Parts {
		if p.Kind == wire.Anonymous {
			parts = append(parts, wire.Part{ID: p.ID, Entries: []wire.Entry{{Counter: hostile, Delta: 1}}})
		}
	}
	if len(parts) == 0 {
		return
	}
	taking := wire.Append(nil, &wire.Batch{Time: b.Time, Flush: b.Flush, Number: b.Number, Parts: parts})
	in, _, err := publisher.OpenBatch(taking, publisher.Sender{Name: hostile, Limited: true}, b.Time, store.MaxWindow)
	if err != nil {
		d.violate("a hostile batch is refused: %v", err)
		return
	}
	_, _ = publisher.NewBatchReceiver(&bus{d.bus, q}, "", wire.DatabaseTag{}).Send(background, in, b.Time)
}

// checkTaken: no merged increments of a sender conflict with those of another.
func (d *receiverNetwork) checkTaken(b *wire.Batch, reused []int) {
	for _, i := range reused {
		if b.Parts[i].Kind == wire.Anonymous {
			d.mu.Lock()
			d.taken = true
			d.mu.Unlock()
		}
	}
}

func (d *receiverNetwork) isTaken() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

// hostile is the counter, and the token, of a sender that takes others' ids.
const hostile = "hostile"

func response(status int, body any) *http.Response {
	text, err := json.Marshal(body)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(must(text, err))))}
}
