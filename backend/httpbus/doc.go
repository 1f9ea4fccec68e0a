// Package httpbus is the publisher's end of a bus over HTTP. It implements Watermill's
// message.Publisher: each message is a flushed batch, and goes to POST /v1/batches of a countmill that
// runs `up` or the publisher role.
//
//	bus, err := httpbus.Open("http://127.0.0.1:8080")
//	p, err := publisher.New(bus, publisher.Config{})
//
// # Delivery semantics
//
// Publish returns nil when the server has the batch durably; with `countmill up` it is folded and in
// the totals. Every repeat has the same bytes, so it counts once within the deduplication window.
//
// The answer is by part. The server lists the parts that it did not count, because their ids were
// counted with other increments. It also lists those whose times are before its deduplication window: an earlier
// try may have counted them, so their calls get countmill.ErrOutcomeUnknown. The bus
// adds both to the message's reply (package wire). The publisher then fails the calls that these
// parts belong to, and no others. The answer also says how to read the batch back: its receipt, or a
// moment since when it is counted. The publisher returns both (publisher.Sent).
//
//	answer                                    means              Publish
//	202 with the number of parts              durable            nil; the reply has the conflicts
//	429, 503, 507                             nothing was done   holds for as long as Retry-After says
//	400, 401, 403, 404, 413, 415, and others  nothing was done,  holds for longer with every try, up
//	below 500                                 a person must act  to 30 s
//	504, and others from 500                  maybe counted      holds, as above
//	any other 202, or any other status        maybe counted      holds, as for its status
//	without a problem type of countmill
//	no connection                             nothing was done   holds
//	the connection broke, or the time-out     maybe counted      holds
//	the bus is closed                         maybe counted      countmill.ErrClosed
//
// Only the server's own answer is certain: a proxy may answer 503, or anything else, after the server has
// counted the batch.
//
// To hold means that Publish returns a *wire.HeldError. The publisher keeps the batch, waits at most
// 30 s, and sends the same bytes again. No answer makes it drop a batch: only Close ends
// it. Ready says why batches are held. Other batches go on beside those with 400 clock-skew, which may be held
// for ever, until these are over 512, or have more than the publisher's Config.MaxBytes.
//
// # Bounds
//
// Publish copies nothing. An answer is read up to 4 MiB. Every call has a time-out (WithTimeout). The
// publisher's Config.MaxInFlight bounds the calls at once, and each keeps one connection alive.
package httpbus
