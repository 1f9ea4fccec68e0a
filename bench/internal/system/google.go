package system

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/publisher"
)

const (
	project = "bench"
	topic   = "increments"
	// A step of distinct counters goes in a flush of its own; so many may be on their way
	// to the store, enough to keep aggregators busy.
	distinctStep    = 10_000
	distinctPending = 3 * distinctStep

	pacedPublishers = 10
	pacedRate       = 100_000 // increments a second, of all publishers
)

func googleSystems() []System {
	const onBus = "on Pub/Sub durably (that the emulator keeps it in memory only is the emulator's); the clock stops when all is folded, exactly once"
	all := classicSystems()
	for _, n := range []int{1, 2, 4} {
		all = append(all, System{
			Name: fmt.Sprintf("google/aggregators/%d", n), Ack: onBus, Loads: distinct,
			How:    fmt.Sprintf("Google's Pub/Sub and Firestore emulators; a publisher in this process, %d processes `countmill aggregator`; default settings, flushed every %d counters", n, distinctStep),
			Family: fmt.Sprintf("google/aggregators/%d", n), Against: "classic", Version: googleVersion,
			Open: openGoogle(n, 1, (*google).countDistinct),
		})
	}
	return append(all, System{
		Name: "google/paced", Ack: onBus, Loads: hot,
		How:    fmt.Sprintf("the same with %d publishers, %d increments a second in all, 1 aggregator, default lingers: for the entities written", pacedPublishers, pacedRate),
		Family: "google/paced", Version: googleVersion,
		Open: openGoogle(1, pacedPublishers, (*google).countPaced),
	})
}

const (
	firestoreJar = "platform/cloud-firestore-emulator/*.jar"
	pubsubJar    = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
	emulatorHeap = "-Xmx6g" // all of their data is in there
)

func googleVersion() (string, error) {
	firestore, err := server.Jar(firestoreJar)
	if err != nil {
		return "", err
	}
	pubsub, err := server.Jar(pubsubJar)
	return filepath.Base(firestore) + ", " + filepath.Base(pubsub), err
}

// startFirestore starts the Firestore emulator in Datastore mode.
func startFirestore(ctx context.Context, dir string) (*server.Process, string, error) {
	jar, err := server.Jar(firestoreJar)
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
		Ready: answers("http://" + addr + "/"), Within: 2 * time.Minute,
	})
	return p, addr, err
}

// google is publishers in this process, aggregators in their own, and Google's emulators
// between and behind them.
type google struct {
	closers
	firestore   string
	aggregators []string // their metrics
	publishers  []*publisher.Publisher
	count       func(*google, context.Context, *load.Run) error
}

func openGoogle(aggregators, publishers int, count func(*google, context.Context, *load.Run) error) func(context.Context, Place) (Instance, error) {
	return func(ctx context.Context, at Place) (Instance, error) {
		g := &google{count: count}
		return opened(g, g.open(ctx, at, aggregators, publishers))
	}
}

func (g *google) open(ctx context.Context, at Place, aggregators, publishers int) error {
	p, firestore, err := startFirestore(ctx, at.Dir)
	if err != nil {
		return err
	}
	g.add(p.Stop)
	g.firestore = firestore
	jar, err := server.Jar(pubsubJar)
	if err != nil {
		return err
	}
	p, pubsub, err := startEmulator(ctx, at.Dir, "pubsub", func(port string) []string {
		return []string{"-jar", jar, "--host=127.0.0.1", "--port=" + port}
	})
	if err != nil {
		return err
	}
	g.add(p.Stop)
	for i := range aggregators {
		if err := g.aggregator(ctx, at, i, pubsub); err != nil {
			return err
		}
	}
	for range publishers {
		if err := g.publisher(ctx, pubsub); err != nil {
			return err
		}
	}
	return nil
}

func (g *google) aggregator(ctx context.Context, at Place, i int, pubsub string) error {
	addr, _, err := server.FreeAddr()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("aggregator-%d", i+1)
	p, err := server.Start(ctx, server.Spec{
		Name: name, Path: at.Countmill, Dir: at.Dir,
		Args: []string{"aggregator", "--listen", addr, "--worker-id", name,
			"--bus", "pubsub://" + project + "/" + topic + "?subscription=aggregators", "--store", "datastore://" + project},
		Env:   []string{"PUBSUB_EMULATOR_HOST=" + pubsub, "DATASTORE_EMULATOR_HOST=" + g.firestore},
		Ready: answers("http://" + addr + "/readyz"), Within: time.Minute,
	})
	if err != nil {
		return err
	}
	g.add(p.Stop)
	g.aggregators = append(g.aggregators, "http://"+addr+"/metrics")
	return nil
}

func (g *google) publisher(ctx context.Context, pubsub string) error {
	bus, err := gcppubsub.Open(ctx, gcppubsub.Config{Project: project, Topic: topic, EmulatorHost: pubsub})
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
	g.publishers = append(g.publishers, pub)
	return nil
}

// Count counts, and notes what it cost.
func (g *google) Count(ctx context.Context, r *load.Run) error {
	if err := g.count(g, ctx, r); err != nil {
		return err
	}
	done, err := g.folded(ctx)
	if err != nil {
		return err
	}
	n, _ := r.Done()
	r.Note("commits", done.commits)
	r.Note("entities_per_million", done.written*1e6/float64(max(n, 1)))
	return nil
}

// countDistinct sends steps of counters that differ, as fast as they are folded.
func (g *google) countDistinct(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	pub, sent := g.publishers[0], 0.0
	err := r.Walk(ctx, 1, distinctStep, func(ctx context.Context, _, _ int, order []uint32) error {
		for _, n := range order {
			if err := pub.Add(r.Names[n], 1); err != nil {
				return err
			}
		}
		if err := pub.Flush(ctx); err != nil {
			return err
		}
		sent += distinctStep
		return g.until(ctx, sent-distinctPending)
	})
	if err != nil {
		return err
	}
	return g.until(ctx, sent)
}

// until waits until so many entries are folded.
func (g *google) until(ctx context.Context, entries float64) error {
	for {
		done, err := g.folded(ctx)
		if err != nil || done.entries >= entries {
			return err
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// countPaced has every publisher add to one counter at an even rate.
func (g *google) countPaced(ctx context.Context, r *load.Run) error {
	const every = 10 * time.Millisecond
	each := pacedRate / len(g.publishers) * int(every/time.Millisecond) / 1000
	begin := time.Now()
	var sent atomic.Int64
	group, adding := errgroup.WithContext(ctx)
	for _, pub := range g.publishers {
		group.Go(func() error {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for n := 0; time.Since(begin) < r.Goal.Least; {
				select {
				case <-adding.Done():
					return adding.Err()
				case <-tick.C:
				}
				for due := each * int(time.Since(begin)/every); n < due; n++ { // also what a late tick owes
					if err := pub.Add(r.Names[0], 1); err != nil {
						return err
					}
					sent.Add(1)
				}
			}
			return pub.Flush(adding)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var entries float64
	for _, pub := range g.publishers {
		entries += float64(pub.Stats().Entries)
	}
	if err := g.until(ctx, entries); err != nil {
		return err
	}
	r.Foreign(sent.Load(), time.Since(begin))
	return nil
}

// A tally is what all aggregators together say of their work.
type tally struct{ entries, written, commits float64 }

func (g *google) folded(ctx context.Context) (tally, error) {
	var t tally
	for _, url := range g.aggregators {
		err := getHTTP(ctx, url, func(body io.Reader) error {
			lines := bufio.NewScanner(body)
			for lines.Scan() {
				name, value, _ := strings.Cut(lines.Text(), " ")
				to := map[string]*float64{
					"countmill_entries_folded_total": &t.entries, "countmill_entities_written_total": &t.written, "countmill_commits_total": &t.commits,
				}[name]
				if to == nil {
					continue
				}
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return err
				}
				*to += n
			}
			return lines.Err()
		})
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// Check sums the shards past countmill.
func (g *google) Check(ctx context.Context, r *load.Run) error {
	totals, err := sums(ctx, g.firestore, "CountmillShard", "counter", "count")
	if err != nil {
		return err
	}
	return checkSums(ctx, r, totals)
}
