// Command sqlbus is countmill with one more bus: a table of PostgreSQL, by Watermill's SQL module. Roles that
// run apart then need no broker, only the database.
//
//	go build -o sqlbus . && export BUS=sql://postgres@127.0.0.1/postgres STORE=postgres://postgres@127.0.0.1/postgres
//	./sqlbus aggregator --bus $BUS --store $STORE --create
//	./sqlbus publisher --bus $BUS
//	./sqlbus reader --store $STORE
//
// Copy it for another Pub/Sub of Watermill, and run the suite of main_test.go on yours: it says which promises
// of a bus it keeps.
package main

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/command"
)

const (
	topic = "increments"

	// atOnce is how many messages an aggregator holds. Each needs a connection: its row is locked by a
	// transaction, which ends with the process.
	atOnce = 20

	// pollEvery is how often each connection looks for a message when there was none.
	pollEvery = 100 * time.Millisecond
)

func main() {
	os.Exit(command.Main(command.WithBus(backend.Bus{
		Scheme: "sql", Usage: "sql://USER@HOST[:PORT]/DATABASE",
		Open: func(ctx context.Context, u backend.URL, c backend.BusConfig) (backend.OpenBus, error) {
			b, err := open(ctx, "postgres:"+u.Rest, c.Create)
			return backend.OpenBus{Channel: b, Topic: topic}, err
		},
	})))
}

// A bus is Watermill's publisher, and as many of its subscriptions as messages may be held: each has one
// message at a time.
type bus struct {
	*watermillsql.Publisher
	subscriber *watermillsql.Subscriber
	pool       *pgxpool.Pool
	life       context.Context
	end        context.CancelFunc
}

func open(ctx context.Context, dsn string, create bool) (*bus, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = atOnce + 10
	b := &bus{}
	b.life, b.end = context.WithCancel(context.Background())
	if b.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if err := b.pool.Ping(ctx); err != nil {
		b.pool.Close()
		return nil, err
	}
	db, log, never := watermillsql.BeginnerFromPgx(b.pool), watermill.NopLogger{}, time.Duration(0)
	b.Publisher, err = watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: newQueue(), AutoInitializeSchema: create}, log)
	if err == nil {
		b.subscriber, err = watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
			SchemaAdapter: newQueue(), OffsetsAdapter: watermillsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true},
			AckDeadline: &never, PollInterval: pollEvery, InitializeSchema: create,
		}, log)
	}
	return b, err
}

// Subscribe is one channel of all subscriptions.
func (b *bus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(b.life, cancel)
	out := make(chan *message.Message)
	var all sync.WaitGroup
	for range atOnce {
		in, err := b.subscriber.Subscribe(ctx, topic)
		if err != nil {
			cancel()
			return nil, err
		}
		all.Go(func() {
			for m := range in {
				select {
				case out <- m:
				case <-ctx.Done():
					m.Nack()
				}
			}
		})
	}
	go func() {
		all.Wait()
		cancel()
		close(out)
	}()
	return out, nil
}

// Close lets the rows go that are held, and disconnects.
func (b *bus) Close() error {
	b.end()
	_ = b.Publisher.Close() // they return nil
	_ = b.subscriber.Close()
	b.pool.Close()
	return nil
}

// A queue is Watermill's table of messages that are deleted when they are acked. It differs in two things.
// Several subscriptions read it, each another row. And a row is read alone: Watermill deletes all rows that
// it has read with the acked one.
type queue struct {
	watermillsql.PostgreSQLQueueSchema
}

func newQueue() queue {
	return queue{watermillsql.PostgreSQLQueueSchema{SubscribeBatchSize: 1, GeneratePayloadType: func(string) string { return "BYTEA" }}}
}

// SelectQuery passes over the rows that others have locked.
func (q queue) SelectQuery(p watermillsql.SelectQueryParams) (watermillsql.Query, error) {
	query, err := q.PostgreSQLQueueSchema.SelectQuery(p)
	query.Query = strings.TrimSpace(query.Query) + " SKIP LOCKED"
	return query, err
}

// SubscribeIsolationLevel has no conflicts with other subscriptions.
func (queue) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }
