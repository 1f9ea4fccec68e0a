package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countmill/countmill/backend"
)

const page, settings = "howto/nats.md", "settings of NATS"

// prepare makes a missing stream or consumer if the configuration allows it, and looks the stream up. It returns an error if
// nobody can use it as a bus.
func (b *Bus) prepare(ctx context.Context) (s jetstream.Stream, err error) {
	if size := b.conn.MaxPayload(); size < leastPayload {
		return nil, backend.Remedied(fmt.Errorf("the server takes messages of up to %d bytes, and batches need %d", size, leastPayload), "set max_payload in the server's configuration")
	}
	if b.cfg.Create {
		if err := b.create(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if s, err = b.js.Stream(ctx, b.cfg.Stream); err != nil {
		return nil, b.explain(err, "stream "+b.cfg.Stream)
	}
	switch cfg, edit := s.CachedInfo().Config, "nats stream edit "+b.cfg.Stream; {
	case !slices.Contains(cfg.Subjects, b.cfg.Stream):
		err = backend.Remedied(fmt.Errorf("stream %s has the subjects %q, and countmill publishes on %s", b.cfg.Stream, cfg.Subjects, b.cfg.Stream),
			edit+" --subjects="+strings.Join(append(cfg.Subjects, b.cfg.Stream), ","))
	case cfg.NoAck:
		err = backend.Remedied(fmt.Errorf("stream %s does not acknowledge messages", b.cfg.Stream), edit+" --ack")
	case cfg.MaxMsgSize > 0 && cfg.MaxMsgSize < leastPayload:
		err = backend.Remedied(fmt.Errorf("stream %s takes messages of up to %d bytes, and batches need %d", b.cfg.Stream, cfg.MaxMsgSize, leastPayload), edit+" --max-msg-size=-1")
	}
	return s, err
}

// create makes the stream and the consumer. Other processes may do the same at the same time.
func (b *Bus) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	stream, err := b.js.Stream(ctx, b.cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = b.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: b.cfg.Stream, Subjects: []string{b.cfg.Stream}, Replicas: b.cfg.Replicas,
			Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
		})
	}
	if err != nil {
		return b.explain(err, "create stream "+b.cfg.Stream)
	}
	_, err = stream.Consumer(ctx, b.cfg.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: b.cfg.Consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.cfg.AckWait, MaxDeliver: -1, MaxAckPending: -1,
		})
	}
	return b.explain(err, "create consumer "+b.cfg.Consumer)
}

// consumer looks the consumer up. It returns an error if this process cannot receive from it.
func (b *Bus) consumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	what := "consumer " + b.cfg.Consumer + " of stream " + b.cfg.Stream
	c, err := b.js.Consumer(ctx, b.cfg.Stream, b.cfg.Consumer)
	if err != nil {
		if errors.Is(err, jetstream.ErrNotPullConsumer) {
			return nil, backend.Remedied(fmt.Errorf("%s pushes its messages", what), "name a pull consumer in --bus. "+b.consumerCommand())
		}
		return nil, b.explain(err, what)
	}
	switch cfg := c.CachedInfo().Config; {
	case cfg.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, backend.Remedied(fmt.Errorf("%s does not wait for an ack of each message", what), "delete it and "+b.consumerCommand())
	case cfg.AckWait < time.Second:
		return nil, backend.Remedied(fmt.Errorf("%s waits for acks for %s; the least is 1s", what, cfg.AckWait), b.consumerEdit("--wait=30s"))
	}
	return c, nil
}

// harmful finds the settings of stream and consumer that lose messages or keep them back.
func (b *Bus) harmful(stream jetstream.Stream, consumer jetstream.Consumer) (all []backend.Finding) {
	s, c := stream.CachedInfo().Config, consumer.CachedInfo().Config
	add := func(bad bool, what, do string) {
		if bad {
			all = append(all, backend.Finding{Check: settings, What: "Stream " + b.cfg.Stream + ", consumer " + b.cfg.Consumer + ": " + what + ".", Why: "Increments are lost or late.", Do: do, Page: page})
		}
	}
	edit, again := "nats stream edit "+b.cfg.Stream, "Make the stream again with %s: this setting cannot be changed."
	bounded := s.MaxMsgs > 0 || s.MaxBytes > 0 || s.MaxMsgsPerSubject > 0
	add(s.Discard == jetstream.DiscardOld && bounded, "a full stream drops its oldest messages uncounted", edit+" --discard=new")
	add(s.MaxAge > 0 && s.MaxAge < 24*time.Hour, "messages are kept for less than a day", edit+" --max-age=0")
	add(s.Storage == jetstream.MemoryStorage, "the messages are in memory, and a restart of the server loses them", fmt.Sprintf(again, "--storage=file"))
	add(s.Retention == jetstream.InterestPolicy, "messages are dropped while the stream has no consumer", fmt.Sprintf(again, "--retention=work"))
	add(s.Retention == jetstream.LimitsPolicy && s.MaxAge == 0, "acked messages stay, and fill the disk", fmt.Sprintf(again, "--retention=work"))
	add(c.DeliverPolicy != jetstream.DeliverAllPolicy, "messages from before the consumer was made stay uncounted", "delete it and "+b.consumerCommand())
	add(c.MaxDeliver > 0, fmt.Sprintf("after %d deliveries a message stays in the stream uncounted", c.MaxDeliver), b.consumerEdit("--max-deliver=-1"))
	add(c.MaxAckPending > 0 && c.MaxAckPending < b.cfg.MaxOutstanding, fmt.Sprintf("all aggregators together hold at most %d messages, and windows do not fill", c.MaxAckPending), b.consumerEdit("--max-pending=-1"))
	add(c.FilterSubject != "" || len(c.FilterSubjects) > 0, "a filter leaves messages uncounted", b.consumerEdit("--filter=''"))
	add(c.InactiveThreshold > 0, "the consumer is deleted when nobody uses it", b.consumerEdit("--inactive-threshold=0s"))
	add(s.Replicas < 2 && b.conn.ConnectedClusterName() != "", "one server of the cluster keeps it, and while that is down nothing is counted", edit+" --replicas=3")
	add(c.AckWait > 2*time.Minute, fmt.Sprintf("messages of a killed aggregator stay hidden for up to %s", c.AckWait), b.consumerEdit("--wait=30s"))
	return all
}

func (b *Bus) consumerEdit(flags string) string {
	return fmt.Sprintf("nats consumer edit %s %s %s", b.cfg.Stream, b.cfg.Consumer, flags)
}

func (b *Bus) consumerCommand() string {
	return fmt.Sprintf("create it: nats consumer add %s %s --pull --ack=explicit --wait=30s --max-deliver=-1 --max-pending=-1 --defaults, or start one process with --create", b.cfg.Stream, b.cfg.Consumer)
}

// explain adds the remedy to errors that a person must resolve. It returns nil for nil.
func (b *Bus) explain(err error, what string) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrNoStreamResponse):
		hint = fmt.Sprintf("create it: nats stream add %s --subjects=%s --storage=file --retention=work --discard=new --defaults, or start one process with --create", b.cfg.Stream, b.cfg.Stream)
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		hint = b.consumerCommand()
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		hint = "JetStream does not answer: is it enabled for this account, and has its cluster a leader?"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrPermissionViolation):
		hint = "name a user's file in credentials= of --bus; docs/howto/nats.md has the permissions"
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		hint = "is a NATS server at " + strings.Join(b.cfg.Servers, ",") + " running?"
	}
	if hint == "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return backend.Remedied(fmt.Errorf("%s: %w", what, err), hint)
}

// Examine looks for mistakes of the stream and of the consumer, and makes neither.
func Examine(ctx context.Context, cfg Config, r *backend.Report) {
	cfg.Create = false
	b, err := connect(cfg)
	if err != nil {
		r.Error("reachability of NATS", err, "Increments are neither sent nor counted.", page)
		return
	}
	defer func() { _ = b.Close() }() // it was only read
	r.Done("reachability of NATS", "")
	stream, err := b.prepare(ctx)
	if err != nil {
		r.Error("stream", err, "Increments are neither sent nor counted.", page)
		return
	}
	r.Done("stream", "")
	consumer, err := b.consumer(ctx)
	if err != nil {
		r.Error("consumer", err, "Aggregators get no messages.", page)
		return
	}
	r.Done("consumer", "")
	for _, f := range b.harmful(stream, consumer) {
		r.Find(f)
	}
	r.Done(settings, "")
}
