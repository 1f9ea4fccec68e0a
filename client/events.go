package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
)

// maxEvent is the longest line of a stream, and the most data of an event, in bytes.
const maxEvent = 4 << 20

// An Event is one of a stream of events, with the data as the server sent it.
type Event struct {
	Name string
	Data []byte
}

// Problem is the error that the event reports, nil for any other event. The server goes on after it.
func (e Event) Problem() *Error {
	if e.Name != "problem" {
		return nil
	}
	return problem(e.Data)
}

// Events returns each event of one connection, such as GET /v1/watch, and ends with an error when the
// connection does. The answer must begin within the Client's time-out. After that the stream lasts
// as long as the server sends something. It does not connect again: Watch does.
func (c *Client) Events(ctx context.Context, r Request) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		late := time.AfterFunc(c.timeout, func() { cancel(context.DeadlineExceeded) })
		res, err := c.send(ctx, r.complete())
		late.Stop()
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = &broken{c.base, cause}
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer res.Body.Close()
		silent := time.AfterFunc(c.silence, func() { cancel(fmt.Errorf("%w for %s", ErrSilent, c.silence)) })
		defer silent.Stop()
		err = eachEvent(res.Body, func() { silent.Reset(c.silence) }, func(e Event) bool { return yield(e, nil) })
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause // the reason why it was ended, not the symptom
		}
		if err != nil {
			yield(Event{}, &broken{c.base, err})
		}
	}
}

// eachEvent reads events until take returns false, or the stream ends. It calls heard for each line.
func eachEvent(stream io.Reader, heard func(), take func(Event) bool) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEvent)
	var e Event
	for lines.Scan() {
		heard()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			e.Name = value
		case field == "data" && len(e.Data)+len(value) > maxEvent:
			return bufio.ErrTooLong
		case field == "data":
			e.Data = append(e.Data, value...)
		case lines.Text() == "" && e.Data != nil:
			if !take(e) {
				return nil
			}
			e = Event{}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the server ended the stream")
}
