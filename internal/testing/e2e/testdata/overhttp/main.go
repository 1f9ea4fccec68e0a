// Command overhttp is a service of another module that counts over HTTP.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

func main() {
	if err := count(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func count(ctx context.Context, base string) error {
	c, err := client.New(base)
	if err != nil {
		return err
	}
	for range 2 { // the second one is a repeat
		if err := c.Increment(ctx, countmill.Increment{Counter: "orders", Delta: 1, ID: "order-7"}); err != nil {
			return err
		}
	}
	if err := c.IncrementMany(ctx, []countmill.Increment{{Counter: "page:/home", Delta: 2}, {Counter: "page:/home", Delta: 3}}); err != nil {
		return err
	}
	totals, err := c.Totals(ctx, []string{"orders", "page:/home"}, client.WithMaxStaleness(0))
	for _, t := range totals {
		fmt.Println(t.Counter, t.Total)
	}
	return err
}
