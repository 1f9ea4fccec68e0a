package system

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/publisher"
)

const (
	firestoreJar = "platform/cloud-firestore-emulator/*.jar"
	pubsubJar    = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
	emulatorHeap = "-Xmx6g" // room for all of their data
)

func googleVersion() (string, error) {
	firestore, err := emulator.Jar(firestoreJar)
	if err != nil {
		return "", err
	}
	pubsub, err := emulator.Jar(pubsubJar)
	return filepath.Base(firestore) + ", " + filepath.Base(pubsub), err
}

// startFirestore starts the Firestore emulator in Datastore mode.
func startFirestore(ctx context.Context, dir string) (*server.Process, string, error) {
	jar, err := emulator.Jar(firestoreJar)
	if err != nil {
		return nil, "", err
	}
	return startEmulator(ctx, dir, "firestore", func(port string) []string {
		return []string{"-cp", jar, "com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start",
			"--host=127.0.0.1", "--port=" + port, "--database-mode=datastore-mode"}
	})
}

func startEmulator(ctx context.Context, dir, name string, args func(port string) []string) (*server.Process, string, error) {
	java, err := server.Find("java")
	if err != nil {
		return nil, "", err
	}
	addr, port, err := server.FreeAddr()
	if err != nil {
		return nil, "", err
	}
	p, err := server.Start(ctx, server.Spec{
		Name: name, Path: java, Dir: dir, Args: append([]string{emulatorHeap, "-Duser.language=en"}, args(port)...),
		Ready: Answers("http://" + addr + "/"), Within: 2 * time.Minute,
	})
	return p, addr, err
}

// Google is Google's emulators, with a publisher in this process and aggregators in processes of their
// own.
type Google struct {
	closers
	Firestore   string // address of the emulator in Datastore mode
	PubSub      string // address
	Aggregators []*server.Process
	Publisher   *publisher.Publisher

	metrics []string // addresses at which the aggregators serve them
	at      Place
	flags   []string
}

// OpenGoogle starts everything. flags are for aggregators, in addition to their defaults. Close it.
func OpenGoogle(ctx context.Context, at Place, aggregators int, flags ...string) (*Google, error) {
	g := &Google{at: at, flags: flags}
	if err := g.open(ctx, aggregators); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Google) open(ctx context.Context, aggregators int) error {
	p, firestore, err := startFirestore(ctx, g.at.Dir)
	if err != nil {
		return err
	}
	g.add(p.Stop)
	g.Firestore = firestore
	jar, err := emulator.Jar(pubsubJar)
	if err != nil {
		return err
	}
	p, pubsub, err := startEmulator(ctx, g.at.Dir, "pubsub", func(port string) []string {
		return []string{"-jar", jar, "--host=127.0.0.1", "--port=" + port}
	})
	if err != nil {
		return err
	}
	g.add(p.Stop)
	g.PubSub = pubsub
	for i := range aggregators {
		if err := g.aggregator(ctx, i); err != nil {
			return err
		}
	}
	return g.publisher(ctx)
}

func (g *Google) aggregator(ctx context.Context, i int) error {
	name := fmt.Sprintf("aggregator-%d", i+1)
	args := append([]string{"aggregator", "--bus", "pubsub://" + project + "/" + topic + "?subscription=aggregators"}, g.flags...)
	p, addr, err := g.role(ctx, name, args...)
	if err != nil {
		return err
	}
	g.Aggregators = append(g.Aggregators, p)
	g.metrics = append(g.metrics, addr)
	return nil
}

// Reader starts a reader and returns its address.
func (g *Google) Reader(ctx context.Context) (addr string, err error) {
	_, addr, err = g.role(ctx, "reader", "reader")
	return addr, err
}

// role starts a process of countmill.
func (g *Google) role(ctx context.Context, name string, args ...string) (*server.Process, string, error) {
	addr, _, err := server.FreeAddr()
	if err != nil {
		return nil, "", err
	}
	p, err := server.Start(ctx, server.Spec{
		Name: name, Path: g.at.Countmill, Dir: g.at.Dir,
		Args:  append(args, "--listen", addr, "--store", "datastore://"+project),
		Env:   []string{"PUBSUB_EMULATOR_HOST=" + g.PubSub, "DATASTORE_EMULATOR_HOST=" + g.Firestore},
		Ready: Answers("http://" + addr + "/readyz"), Within: time.Minute,
	})
	if err != nil {
		return nil, "", err
	}
	g.add(p.Stop)
	return p, addr, nil
}

func (g *Google) publisher(ctx context.Context) error {
	bus, err := gcppubsub.Open(ctx, gcppubsub.Config{Project: project, Topic: topic, EmulatorHost: g.PubSub})
	if err != nil {
		return err
	}
	g.add(func() { _ = bus.Close() })
	pub, err := publisher.New(bus, publisher.Config{Topic: topic})
	if err != nil {
		return err
	}
	g.add(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = pub.Close(ctx)
	})
	g.Publisher = pub
	return nil
}

// Folded waits until that many entries are folded.
func (g *Google) Folded(ctx context.Context, entries int) error {
	for {
		done, err := g.folded(ctx)
		if err != nil || int(done.entries) >= entries {
			return err
		}
		if err := Wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// A tally is the sum of all aggregators' metrics.
type tally struct{ messages, entries, written, commits float64 }

func (g *Google) folded(ctx context.Context) (tally, error) {
	m, err := g.Metrics(ctx)
	return tally{
		messages: m["countmill_messages_received_total"], entries: m["countmill_entries_folded_total"],
		written: m["countmill_entities_written_total"], commits: m["countmill_commits_total"],
	}, err
}

// Taken waits until aggregators have received that many messages, and returns how many entries were
// folded by then.
func (g *Google) Taken(ctx context.Context, messages int) (folded int, err error) {
	for {
		done, err := g.folded(ctx)
		if err != nil || int(done.messages) >= messages {
			return int(done.entries), err
		}
		if err := Wait(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// CheckOnes returns an error unless the store has that many counters, of 1 each.
func (g *Google) CheckOnes(ctx context.Context, counters int) error {
	totals, err := sums(ctx, g.Firestore, "CountmillShard", "name", "count")
	if err != nil {
		return err
	}
	for name, total := range totals {
		if total != 1 {
			return fmt.Errorf("%w: %s is %d, want 1", load.ErrWrong, name, total)
		}
	}
	if len(totals) != counters {
		return fmt.Errorf("%w: %d counters, want %d", load.ErrWrong, len(totals), counters)
	}
	return nil
}
