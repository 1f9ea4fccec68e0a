// Command use calls a server with the generated client.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countmill/countmill/tools/openapi/countmillapi"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := use(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func use(ctx context.Context, base string) error {
	c, err := countmillapi.NewClientWithResponses(base)
	if err != nil {
		return err
	}
	if err := count(ctx, c); err != nil {
		return err
	}
	if err := read(ctx, c); err != nil {
		return err
	}
	return watch(ctx, c)
}

func count(ctx context.Context, c *countmillapi.ClientWithResponses) error {
	large, small := int64(1<<53-1), int64(2)
	var body countmillapi.Increments
	err := body.FromIncrementList([]countmillapi.Increment{{Counter: "page:/home", Delta: &large}, {Counter: "page:/home", Delta: &small}})
	if err != nil {
		return err
	}
	key := "one"
	res, err := c.AddIncrementsWithResponse(ctx, &countmillapi.AddIncrementsParams{IdempotencyKey: &key}, body)
	if err != nil || res.JSON202 == nil {
		return fmt.Errorf("addIncrements: %v, %s", err, res.Body)
	}
	fmt.Println("accepted", res.JSON202.Accepted)
	return nil
}

func read(ctx context.Context, c *countmillapi.ClientWithResponses) error {
	got, err := c.GetTotalsWithResponse(ctx, &countmillapi.GetTotalsParams{Counter: &countmillapi.Counters{"page:/home"}})
	if err != nil || got.JSON200 == nil {
		return fmt.Errorf("getTotals: %v, %s", err, got.Body)
	}
	n, err := got.JSON200.Totals[0].Total.AsInteger()
	if err != nil {
		return err
	}
	fmt.Println("total", n)
	page, err := c.ListCountersWithResponse(ctx, &countmillapi.ListCountersParams{})
	if err != nil || page.JSON200 == nil {
		return fmt.Errorf("listCounters: %v, %s", err, page.Body)
	}
	for _, t := range page.JSON200.Totals {
		fmt.Println("listed", t.Counter)
	}
	return nil
}

// watch reads the first event, and has a request refused.
func watch(ctx context.Context, c *countmillapi.ClientWithResponses) error {
	stream, err := c.WatchTotals(ctx, &countmillapi.WatchTotalsParams{Counter: &[]countmillapi.CounterName{"page:/home"}})
	if err != nil {
		return err
	}
	defer stream.Body.Close()
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var event countmillapi.WatchEvent
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return err
		}
		n, err := event.Totals[0].Total.AsInteger()
		if err != nil {
			return err
		}
		fmt.Println("watched", n)
		break
	}
	zero := int64(0)
	var body countmillapi.Increments
	if err := body.FromIncrement(countmillapi.Increment{Counter: "a", Delta: &zero}); err != nil {
		return err
	}
	res, err := c.AddIncrementsWithResponse(ctx, nil, body)
	if err != nil || res.ApplicationproblemJSON400 == nil {
		return fmt.Errorf("addIncrements: %v, %s", err, res.Body)
	}
	fmt.Println("refused", *res.ApplicationproblemJSON400.Field)
	return nil
}
