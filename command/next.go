package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

var nextCommand = command{
	path:  "next",
	group: "count",
	args:  "SEQUENCE",
	short: "print the next value of a sequence",
	long: `Prints the next value of SEQUENCE: 1, 2, 3 and so on. No value is given twice. A sequence needs
no creation, and has nothing to do with a counter of the same name.

  countmill next user:42
  countmill next user:42 --id comment-7     the same value, however often it is run
  countmill next invoices --count 100       the first and the last of 100 values
`,
	run: runNext,
}

func runNext(ctx context.Context, c call) error {
	name, err := c.oneName()
	if err != nil {
		return err
	}
	id, err := c.requestID()
	if err != nil {
		return err
	}
	request := map[string]any{"sequence": name, "id": id}
	if c.given("count") {
		request["count"] = c.count
	}
	answer, err := c.ask(ctx, client.Request{Method: http.MethodPost, Path: "/v1/sequences/next", Body: body(request), Safe: true})
	if err != nil {
		if errors.Is(err, countmill.ErrOutcomeUnknown) {
			return fmt.Errorf("maybe given: %w; repeat it with --id %s", err, id)
		}
		return fmt.Errorf("no value: %w", err)
	}
	return c.printValues(answer)
}

func (c call) printValues(answer []byte) error {
	if c.json {
		_, err := c.stdout.Write(answer)
		return err
	}
	var got struct{ Value, First, Last json.Number }
	err := json.Unmarshal(answer, &got)
	switch {
	case err == nil && got.Value != "":
		fmt.Fprintln(c.stdout, got.Value)
	case err == nil && got.First != "" && got.Last != "":
		fmt.Fprintln(c.stdout, got.First, got.Last)
	default:
		return errors.New("the server answered with something else than values; is that a countmill?")
	}
	return nil
}
