package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/embedded"
)

// docs/howto/use-from-go.md shows the body of this function.
func visit(ctx context.Context, dir string) (int64, error) {
	db, err := embedded.Open(dir)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	// Publish returns when the increment is on disk: from then on it survives kill -9.
	if err := db.Publish(ctx, countmill.Increment{Counter: "page:/home", Delta: 1}); err != nil {
		return 0, err
	}
	home, err := db.Total(ctx, "page:/home")
	return home.Total, err
}

// temporary calls f with a directory of its own.
func temporary(f func(ctx context.Context, dir string) error) {
	dir, err := os.MkdirTemp("", "countmill-example-")
	if err == nil {
		err = errors.Join(f(context.Background(), filepath.Join(dir, "counters")), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Println(err)
	}
}

func ExampleOpen() {
	temporary(func(ctx context.Context, dir string) error {
		for range 2 { // the second one continues where the first one ended
			total, err := visit(ctx, dir)
			if err != nil {
				return err
			}
			fmt.Println(total)
		}
		return nil
	})
	// Output:
	// 1
	// 2
}

// counted calls f with an open DB.
func counted(f func(ctx context.Context, db *embedded.DB) error) {
	temporary(func(ctx context.Context, dir string) error {
		db, err := embedded.Open(dir)
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, db), db.Close())
	})
}

func ExampleDB_Add() {
	counted(func(ctx context.Context, db *embedded.DB) error {
		for range 1000 {
			if err := db.Add("requests", 1); err != nil { // ErrOverloaded or ErrClosed: not counted
				return err
			}
		}
		if err := db.Flush(ctx); err != nil { // now they are on disk
			return err
		}
		requests, err := db.Total(ctx, "requests")
		fmt.Println(requests.Total)
		return err
	})
	// Output: 1000
}

func ExampleDB_Counter() {
	counted(func(ctx context.Context, db *embedded.DB) error {
		requests, err := db.Counter("requests") // looked up once
		if err != nil {
			return err
		}
		for range 3 {
			if err := requests.Add(2); err != nil {
				return err
			}
		}
		if err := db.Flush(ctx); err != nil {
			return err
		}
		total, err := db.Total(ctx, "requests")
		fmt.Println(total.Total)
		return err
	})
	// Output: 6
}

func ExampleDB_Total() {
	counted(func(ctx context.Context, db *embedded.DB) error {
		// The id makes a repeat harmless.
		order := countmill.Increment{Counter: "orders", Delta: 1, ID: "order-7"}
		for range 2 {
			if err := db.Publish(ctx, order); err != nil {
				return err
			}
		}
		for _, name := range []string{"orders", "refunds"} {
			total, err := db.Total(ctx, name)
			if err != nil {
				return err
			}
			fmt.Println(name, total.Total, total.Exists)
		}
		return nil
	})
	// Output:
	// orders 1 true
	// refunds 0 false
}

func ExampleDB_Watch() {
	counted(func(ctx context.Context, db *embedded.DB) error {
		for totals, err := range db.Watch(ctx, "likes") {
			if err != nil {
				return err
			}
			fmt.Println(totals[0].Total)
			if totals[0].Total == 3 {
				return nil
			}
			if err := db.Publish(ctx, countmill.Increment{Counter: "likes", Delta: 1}); err != nil {
				return err
			}
		}
		return nil
	})
	// Output:
	// 0
	// 1
	// 2
	// 3
}

func ExampleDB_Handler() {
	counted(func(_ context.Context, db *embedded.DB) error {
		mux := http.NewServeMux()
		mux.Handle("/counters/", http.StripPrefix("/counters", db.Handler()))
		server := httptest.NewServer(mux)
		defer server.Close()
		res, err := http.Post(server.URL+"/counters/v1/increments", "application/json", strings.NewReader(`{"counter":"page:/home"}`))
		if err != nil {
			return err
		}
		fmt.Println(res.Status)
		return res.Body.Close()
	})
	// Output: 202 Accepted
}
