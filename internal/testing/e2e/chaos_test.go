package e2e

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/faultproxy"
)

// Faults kill, stop, cut off or delay processes and connections, many at once. Every acknowledged
// increment is counted once. No increment is counted that was not sent. Every total that is read
// meanwhile is one that countmill may show.
//
// COUNTMILL_TEST_CHAOS is how long faults strike (20s), COUNTMILL_TEST_SEED decides which.
func TestChaos(t *testing.T) {
	t.Parallel()
	length := lengthOf(t, "COUNTMILL_TEST_CHAOS", 20*time.Second)
	// Emulators keep everything in memory, so a longer run sends more slowly instead of more.
	c := newChaos(t, seed(t), max(1, length/(15*time.Minute))*100*time.Millisecond)
	began := time.Now()
	for rounds := 1; time.Since(began) < length; rounds++ {
		c.round(min(time.Duration(15+c.rand.IntN(15))*time.Second, length-time.Since(began)))
		t.Logf("%s, round %d: %s", time.Since(began).Round(time.Second), rounds, c.progress())
	}
	c.callers.settle(t)
	kills, all := c.kills()
	c.callers.report(t, time.Since(began), c.took, [2]string{"faults", strconv.Itoa(all)}, [2]string{"kills", strconv.Itoa(kills)},
		[2]string{"seconds to recover in rounds with half-open connections", seconds(c.silent)})
	c.ended()
	c.d.noDeadLetters(t)
	c.callers.readers[0].up().noDeadLetters(t)
}

// lengthOf is the duration in a variable, which is at least 1s.
func lengthOf(t *testing.T, variable string, otherwise time.Duration) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv(variable), otherwise.String()))
	if err != nil || d < time.Second {
		t.Fatalf("%s must be a duration of at least 1s, got %q", variable, os.Getenv(variable))
	}
	return d
}

// timesOf is the number in a variable, which is at least 1.
func timesOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(variable), strconv.Itoa(otherwise)))
	if err != nil || n < 1 {
		t.Fatalf("%s must be a number of at least 1, got %q", variable, os.Getenv(variable))
	}
	return n
}

// seed is COUNTMILL_TEST_SEED, or a random seed.
func seed(t *testing.T) uint64 {
	t.Helper()
	var b [8]byte
	_, _ = rand.Read(b[:])
	n := binary.NativeEndian.Uint64(b[:]) % 1e12
	if text := os.Getenv("COUNTMILL_TEST_SEED"); text != "" && text != "0" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("COUNTMILL_TEST_SEED must be a number, got %q", text)
		}
	}
	t.Logf("SEED=%d", n) // decides the faults and the requests, but not the speed of processes
	return n
}

// A chaos is a deployment of two publishers, three aggregators and two readers. Each process has a
// proxy of its own to each of its servers.
type chaos struct {
	t       *testing.T
	d       *ownDeployment
	rand    *mathrand.Rand
	ledger  *ledger
	callers *callers
	parent  int

	members   []*member
	victims   []victim
	struck    map[strike]int
	endings   []ending
	cacheAway bool
	orphaned  bool                      // in this round
	faults    map[*faultproxy.Proxy]int // faults that have not ended, by proxy
	took      []time.Duration           // recovery time of each round
	silent    []time.Duration           // the same for rounds with a half-open connection
}

// The emulator shows commits some milliseconds late to reads of the present moment, or more on a
// busy machine. Reads of a past moment, a little later, see them.
const emulatorLate = time.Second

// A victim is a process, or memcached (member is nil), and its proxies to servers.
type victim struct {
	name   string
	member *member
	ways   []*faultproxy.Proxy
}

func newChaos(t *testing.T, seed uint64, pace time.Duration) *chaos {
	t.Helper()
	c := &chaos{
		t: t, d: own(t), rand: mathrand.New(mathrand.NewPCG(seed, 1<<32)), parent: os.Getppid(),
		struck: make(map[strike]int), faults: make(map[*faultproxy.Proxy]int),
	}
	c.ledger = newLedger("chaos", false)
	c.ledger.apart = emulatorLate
	var publishers, readers []*member
	for range 2 {
		publishers = append(publishers, c.add("publisher", "--bus", c.d.bus()))
	}
	for range 3 {
		c.add("aggregator", "--bus", c.d.bus(), "--store", c.d.store())
	}
	for range 2 {
		readers = append(readers, c.add("reader", "--store", c.d.store()))
	}
	c.victims = append(c.victims, victim{name: "memcached"})
	for _, m := range c.members {
		until(t, time.Minute, "the "+m.role+" to be ready", m.ready)
	}
	c.callers = startCallers(t, c.ledger, seed, publishers, readers, pace)
	return c
}

// add starts a member with proxies of its own.
func (c *chaos) add(role string, flags ...string) *member {
	c.t.Helper()
	v := victim{name: role}
	way := func(target string) string {
		p := faultproxy.Start(c.t, target)
		v.ways = append(v.ways, p)
		return p.Host()
	}
	var env []string
	if role != "reader" {
		env = append(env, "PUBSUB_EMULATOR_HOST="+way(c.d.pubsub))
	}
	if role != "publisher" {
		env = append(env, "DATASTORE_EMULATOR_HOST="+way(c.d.datastore))
	}
	if role == "reader" {
		flags = append(flags, "--cache", "memcached://"+way(c.d.cache.Host()))
	}
	v.member = keep(c.t, env, role, flags...)
	c.members, c.victims = append(c.members, v.member), append(c.victims, v)
	return v.member
}

// round applies faults for a time, some at once. Then it ends all of them and waits until everything
// has recovered.
func (c *chaos) round(length time.Duration) {
	c.t.Helper()
	over := time.Now().Add(length)
	var next time.Time
	c.orphaned = false
	for time.Now().Before(over) {
		c.end(time.Now())
		if time.Now().After(next) {
			c.strike()
			pause := time.Duration(c.rand.ExpFloat64() * float64(700*time.Millisecond))
			next = time.Now().Add(min(pause, 4*time.Second))
		}
		c.pause(20 * time.Millisecond)
	}
	c.end(over.Add(time.Hour))
	healed, began := now(), time.Now()
	for lacking := -1; lacking != 0; {
		if time.Since(began) > 3*time.Minute {
			c.t.Fatalf("3m after all faults had ended: %d increments that had been acknowledged are in no total; %s", lacking, c.unready())
		}
		c.pause(100 * time.Millisecond)
		if lacking = c.callers.seek(c.rand, healed); c.unready() != "" {
			lacking = -1
		}
	}
	if c.orphaned {
		c.silent = append(c.silent, time.Since(began))
	} else {
		c.took = append(c.took, time.Since(began))
	}
	c.ledger.check(false)
	c.fail()
}

// pause waits d, or until the test should stop.
func (c *chaos) pause(d time.Duration) {
	c.t.Helper()
	c.fail()
	if os.Getppid() != c.parent {
		c.t.Fatal("what had started the tests is gone")
	}
	<-time.After(d)
}

// fail ends the test if something was wrong.
func (c *chaos) fail() {
	c.t.Helper()
	if err := c.ledger.problems(); err != nil {
		c.t.Fatalf("%s\n%v", c.progress(), err)
	}
}

// unready names the members that are not ready, and the reasons; "" if all are.
func (c *chaos) unready() string {
	var who strings.Builder
	for _, m := range c.members {
		p := m.up()
		if p == nil {
			fmt.Fprintf(&who, "a %s starts; ", m.role)
			continue
		}
		if status, body := p.get("/readyz"); status != http.StatusOK {
			fmt.Fprintf(&who, "the %s at %s is not ready: %d %s; ", m.role, p.url, status, body)
		}
	}
	return who.String()
}

// kills returns how many of the faults were SIGKILL.
func (c *chaos) kills() (kills, all int) {
	for s, n := range c.struck {
		if all += n; s.fault == "killed" {
			kills += n
		}
	}
	return kills, all
}

func (c *chaos) progress() string {
	kills, all := c.kills()
	n := c.callers.counted()
	text := fmt.Sprintf("%d faults, %d of them kills; %d increments acknowledged in %d requests, %d of which were repeated; %d totals read",
		all, kills, n.increments, n.requests, n.again+n.absorbed, c.ledger.shown())
	return text + "; seconds to recover: " + seconds(c.took) + "; with half-open connections: " + seconds(c.silent)
}

// ended checks that no process that had started ended without being killed.
func (c *chaos) ended() {
	early := 0
	for _, m := range c.members {
		m.mu.Lock()
		for _, end := range m.ends {
			c.t.Errorf("ended by itself: %s", end)
		}
		early += len(m.early)
		m.mu.Unlock()
	}
	c.t.Logf("processes that gave up while they started, their servers out of reach: %d", early)
}
