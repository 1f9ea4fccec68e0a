package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/embedded"
)

// A comment is a text that a user posts. ID and Time stay the same when the user's program posts it again.
type comment struct {
	User string    `json:"user"`
	Text string    `json:"text"`
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
}

// A list is the comments of a site.
type list struct {
	numbers *embedded.DB // the sequence of each user
	table   *table
}

// key is the time, the user, and the number of the user's comment. Keys sort by time; two comments of one
// moment differ in their users, and two of one user and moment in their numbers. No two users share a
// counter, so nobody waits for another one.
func key(at time.Time, user string, number int64) string {
	return fmt.Sprintf("%016x/%s/%016x", at.UnixMicro(), user, number)
}

// post stores a comment and returns its key. It may be repeated after any error, also after the process was
// killed: the user's sequence gives the same number for the same ID. So the key is the same, and the
// comment is in the list once.
func (l *list) post(ctx context.Context, c comment) (string, error) {
	if c.ID == "" || c.Time.UnixMicro() <= 0 {
		return "", fmt.Errorf("%w: id and time are required", countmill.ErrInvalid)
	}
	number, err := l.numbers.Next(ctx, countmill.NextRequest{Sequence: "comments:" + c.User, ID: c.ID, Time: c.Time})
	if err != nil {
		return "", err
	}
	k := key(c.Time, c.User, number.First)
	return k, l.table.put(k, c)
}

// A page is comments in the order of their keys. Prev and Next lead to the pages beside it; empty at an end.
type page struct {
	Comments []stored `json:"comments"`
	Prev     string   `json:"prev,omitempty"` // pass it as before
	Next     string   `json:"next,omitempty"` // pass it as after
}

// pageAfter is the page that begins behind a key, the first one for an empty key.
func (l *list) pageAfter(after string, limit int) (page, error) {
	found, err := l.table.after(after, limit+1)
	if err != nil {
		return page{}, err
	}
	p := page{Comments: found}
	if len(found) > limit {
		p.Comments = found[:limit]
		p.Next = p.Comments[limit-1].Key
	}
	if after != "" && len(p.Comments) > 0 {
		p.Prev = p.Comments[0].Key
	}
	return p, nil
}

// pageBefore is the page that ends before a key, the last one for an empty key.
func (l *list) pageBefore(before string, limit int) (page, error) {
	found, err := l.table.before(before, limit+1)
	if err != nil {
		return page{}, err
	}
	p := page{Comments: found}
	if len(found) > limit {
		p.Comments = found[:limit]
		p.Prev = p.Comments[limit-1].Key
	}
	slices.Reverse(p.Comments)
	if before != "" && len(p.Comments) > 0 {
		p.Next = p.Comments[len(p.Comments)-1].Key
	}
	return p, nil
}
