package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/publisher"
)

// remoteVariable makes this program a publisher: it has the server's address.
const remoteVariable = "COUNTMILL_TEST_REMOTE_SERVER"

// publishFor does the requests on standard input, all at once, and writes their outcomes.
func publishFor(address string) error {
	bus, err := httpbus.Open(address, httpbus.WithTimeout(5*time.Second))
	if err != nil {
		return err
	}
	p, err := publisher.New(bus, publisher.Config{Linger: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	var calls sync.WaitGroup
	var mu sync.Mutex
	answers := json.NewEncoder(os.Stdout)
	for requests := json.NewDecoder(os.Stdin); ; {
		var r remoteRequest
		if err := requests.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		calls.Go(func() {
			a := remoteAnswer{N: r.N}
			if err := r.do(p); err != nil {
				a.Error = err.Error()
				a.Fatal = !errors.Is(err, countmill.ErrOutcomeUnknown) && !errors.Is(err, countmill.ErrUnavailable) && !errors.Is(err, countmill.ErrOverloaded)
			}
			mu.Lock()
			defer mu.Unlock()
			_ = answers.Encode(a)
		})
	}
	calls.Wait()
	return errors.Join(p.Close(context.Background()), bus.Close())
}

func (r remoteRequest) do(p *publisher.Publisher) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch {
	case r.Adds > 0:
		for range r.Adds {
			if err := p.Add(r.Counter, 1); err != nil {
				return err
			}
		}
		_, err := p.Flush(ctx)
		return err
	case r.Key != "":
		incs := make([]countmill.Increment, remoteKeyed)
		for i := range incs {
			incs[i] = countmill.Increment{Counter: fmt.Sprint(r.Counter, i), Delta: r.Delta}
		}
		_, err := p.PublishKeyed(ctx, "", r.Key, incs...)
		return err
	}
	_, err := p.Publish(ctx, countmill.Increment{Counter: r.Counter, Delta: r.Delta, ID: r.ID})
	return err
}
