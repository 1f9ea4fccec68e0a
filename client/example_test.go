package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
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
	c, stop := up()
	defer stop()
	for range 2 { // the second one is a repeat
		total, err := order(context.Background(), c)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(total)
	}
	total, err := orderAndRead(context.Background(), c)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(total)
	// Output:
	// 1
	// 1
	// 2
}

// up is a client of `countmill up` in this process.
func up() (c *client.Client, stop func()) {
	dir, err := os.MkdirTemp("", "countmill-example-")
	if err != nil {
		log.Fatal(err)
	}
	a, err := app.New(app.Config{Listen: "127.0.0.1:0", Store: "pebble:" + dir})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	if c, err = client.New("http://" + a.Addr()); err != nil {
		log.Fatal(err)
	}
	return c, func() {
		cancel()
		if err := errors.Join(<-ended, os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}

// IncrementMany counts any number of increments, each request of it once.
func ExampleClient_IncrementMany() {
	c, stop := up()
	defer stop()
	ctx := context.Background()

	err := c.IncrementMany(ctx, []countmill.Increment{
		{Counter: "page:/home", Delta: 1}, {Counter: "orders", Delta: 2, ID: "order-7"}, {Counter: "page:/home", Delta: 1},
	})
	if err != nil {
		log.Fatal(err)
	}
	home, err := c.Total(ctx, "page:/home", client.WithMaxStaleness(0))
	fmt.Println(home.Total, err)
	// Output: 2 <nil>
}

// Totals reads up to 1,000 counters at one moment.
func ExampleClient_Totals() {
	c, stop := up()
	defer stop()
	ctx := context.Background()
	if err := c.Increment(ctx, countmill.Increment{Counter: "page:/home", Delta: 3}); err != nil {
		log.Fatal(err)
	}

	totals, err := c.Totals(ctx, []string{"page:/home", "page:/nowhere"}, client.WithMaxStaleness(0))
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range totals {
		fmt.Println(t.Counter, t.Total, t.Exists)
	}
	// Output:
	// page:/home 3 true
	// page:/nowhere 0 false
}

func ExampleClient_List() {
	c, stop := up()
	defer stop()
	ctx := context.Background()
	err := c.IncrementMany(ctx, []countmill.Increment{{Counter: "page:/b", Delta: 2}, {Counter: "page:/a", Delta: 1}, {Counter: "orders", Delta: 9}})
	if err != nil {
		log.Fatal(err)
	}

	for t, err := range c.List(ctx, "page:") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Counter, t.Total)
	}
	// Output:
	// page:/a 1
	// page:/b 2
}

// A watch begins with the totals of now and goes on with each change, until the loop ends.
func ExampleClient_Watch() {
	c, stop := up()
	defer stop()
	ctx := context.Background()

	for update, err := range c.Watch(ctx, []string{"orders"}, client.WithInterval(100*time.Millisecond)) {
		if err != nil {
			log.Fatal(err) // or go on: the watch connects again
		}
		fmt.Println(update.Totals[0].Total)
		if update.Totals[0].Total > 0 {
			break
		}
		if err := c.Increment(ctx, countmill.Increment{Counter: "orders", Delta: 5}); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0
	// 5
}

// Events has each event as the server sent it.
func ExampleClient_Events() {
	c, stop := up()
	defer stop()
	for e, err := range c.Events(context.Background(), client.Request{Path: "/v1/watch", Query: url.Values{"counter": {"orders"}}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Name, strings.Contains(string(e.Data), `"total":0`))
		break
	}
	// Output: totals true
}

// A reset with an id is the same reset, however often it is repeated.
func ExampleClient_Reset() {
	c, stop := up()
	defer stop()
	ctx := context.Background()
	if err := c.Increment(ctx, countmill.Increment{Counter: "orders", Delta: 7}); err != nil {
		log.Fatal(err)
	}

	removed, err := c.Reset(ctx, "orders", "2026-01")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(removed.Removed)
	// Output: 7
}

// Do calls any route, with the same repeats as the methods.
func ExampleClient_Do() {
	c, stop := up()
	defer stop()
	answer, err := c.Do(context.Background(), client.Request{Path: "/v1/dead-letters"})
	fmt.Println(strings.TrimSpace(string(answer)), err)
	// Output: {"dead_letters":[]} <nil>
}

// An Error has the status, the type and the field of the answer.
func ExampleError() {
	c, stop := up()
	defer stop()
	err := c.Increment(context.Background(), countmill.Increment{Counter: "orders"})
	var refused *client.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Status, refused.Type, refused.Field)
	}
	fmt.Println(errors.Is(err, countmill.ErrInvalid))
	// Output:
	// 400 invalid delta
	// true
}

// A ManyError says how far IncrementMany came.
func ExampleManyError() {
	c, stop := up()
	defer stop()
	incs := []countmill.Increment{{Counter: "orders", Delta: 1, ID: "order-7"}}
	if err := c.IncrementMany(context.Background(), incs); err != nil {
		log.Fatal(err)
	}
	incs[0].Delta = 5 // another delta under the same id
	err := c.IncrementMany(context.Background(), append(incs, countmill.Increment{Counter: "orders", Delta: 2}))
	var many *client.ManyError
	if errors.As(err, &many) {
		fmt.Println(many.Counted, many.Conflicts)
	}
	// Output: 2 [{0 orders order-7 5}]
}

// A client asks for a token before each call, for tokens that change.
func ExampleWithTokenSource() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Authorization"))
		fmt.Fprint(w, `{"status":"ready"}`)
	}))
	defer server.Close()
	c, err := client.New(server.URL, client.WithTokenSource(func(context.Context) (string, error) {
		return "cmtok_now", nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Ready(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: Bearer cmtok_now
}
