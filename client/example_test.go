package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
)

// A service counts over HTTP. docs/howto/use-from-go.md shows this function.
func order(ctx context.Context, c *client.Client) (int64, error) {
	// The id makes a repeat harmless: after ErrOutcomeUnknown, call it again with the same id.
	err := c.Increment(ctx, countmill.Increment{Counter: "orders", Delta: 1, ID: "order-7"})
	if err != nil {
		return 0, err
	}
	total, err := c.Total(ctx, "orders", client.WithMaxStaleness(0))
	if err != nil {
		return 0, err
	}
	return total.Total, nil
}

// A service reads what it has counted. docs/howto/read-what-you-wrote.md shows this function.
func orderAndRead(ctx context.Context, c *client.Client) (int64, error) {
	var done client.Accepted
	err := c.Increment(ctx, countmill.Increment{Counter: "orders", Delta: 1}, client.WithAccepted(func(a client.Accepted) { done = a }))
	if err != nil {
		return 0, err
	}
	option := client.WithMinAsOf(done.CountedAsOf)
	if done.Receipt != "" { // the roles are apart
		option = client.WithAfter(done.Receipt, 2*time.Second)
	}
	total, err := c.Total(ctx, "orders", option)
	return total.Total, err
}

func Example() {
	if err := example(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1
	// 1
	// 2
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
	c, err := client.New("http://" + a.Addr())
	if err != nil {
		return err
	}
	for range 2 { // the second one is a repeat
		total, err := order(ctx, c)
		if err != nil {
			return err
		}
		fmt.Println(total)
	}
	total, err := orderAndRead(ctx, c)
	fmt.Println(total)
	return err
}
