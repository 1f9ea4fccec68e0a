package httpbus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/publisher"
)

// count counts from any process. docs/howto/publish-from-any-process.md shows this function.
func count(ctx context.Context, address string) (err error) {
	bus, err := httpbus.Open(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Close()) }()
	p, err := publisher.New(bus, publisher.Config{Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, p.Close(ctx)) // names increments that are not confirmed
	}()
	for range 1000 {
		if err := p.Add("page:home", 1); err != nil { // does not wait
			return err
		}
	}
	// The id makes a repeat harmless: after ErrOutcomeUnknown, call it again with the same id.
	_, err = p.Publish(ctx, countmill.Increment{Counter: "orders", Delta: 1, ID: "order-7"})
	return err
}

func Example() {
	if err := example(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// page:home 1000
	// orders 1
}

func example() (err error) {
	dir, err := os.MkdirTemp("", "countmill-example-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	a, err := app.New(app.Config{Listen: "127.0.0.1:0", Store: "pebble:" + dir})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	if err := count(ctx, "http://"+a.Addr()); err != nil {
		return err
	}
	c, err := client.New("http://" + a.Addr())
	if err != nil {
		return err
	}
	totals, err := c.Totals(ctx, []string{"page:home", "orders"}, client.WithMaxStaleness(0))
	for _, t := range totals {
		fmt.Println(t.Counter, t.Total)
	}
	return err
}
