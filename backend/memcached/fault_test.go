package memcached

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
)

// All connections are idle when the server restarts. No call may fail because of that.
func TestRestartBetweenCallsIsNoError(t *testing.T) {
	t.Parallel()
	server := emulator.Memcached(t)
	c := open(t, Config{Servers: []string{server.Host()}})
	for round := range 3 {
		for _, call := range []func() error{
			func() error { _, err := c.Get(t.Context(), []string{"a"}); return err },
			func() error { return c.put(t.Context(), total("a", 1, time.Now()), 60, entry{}) },
			func() error { _, err := c.Lock(t.Context(), "a", time.Minute); return err },
		} {
			if err := call(); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			server.Stop()
			server.Start(t)
		}
	}
}

func TestStoppedServerIsAnErrorInTime(t *testing.T) {
	t.Parallel()
	server := emulator.Memcached(t)
	const timeout = 100 * time.Millisecond
	c := open(t, Config{Servers: []string{server.Host()}, Timeout: timeout, MaxIdle: 2})
	eventually(t, "the total is set", func() bool {
		return c.Set(t.Context(), []cachedTotal{total("a", 1, time.Now())}, time.Hour) == nil
	})
	server.Pause(t)
	for range 5 { // more calls than connections: the later ones wait
		for name, call := range map[string]func() error{
			"Get":  func() error { _, err := c.Get(t.Context(), []string{"a", "b"}); return err },
			"Set":  func() error { return c.Set(t.Context(), []cachedTotal{total("a", 1, time.Now())}, time.Second) },
			"Lock": func() error { _, err := c.Lock(t.Context(), "b", time.Second); return err },
		} {
			began := time.Now()
			err := call()
			// The server never answers: only the time-out ends the call.
			if took := time.Since(began); err == nil || took > timeout+patience {
				t.Errorf("%s: got error %v after %s, want one after %s", name, err, took, timeout)
			}
		}
	}
	server.Resume(t)
	eventually(t, "the total can be read", func() bool {
		got, err := c.Get(t.Context(), []string{"a"})
		return err == nil && len(got) == 1
	})
}

// A cancelled call returns at once, and the number of exchanges that it leaves behind is bounded.
func TestCancelReturnsAtOnce(t *testing.T) {
	t.Parallel()
	server := emulator.Memcached(t)
	c := open(t, Config{Servers: []string{server.Host()}, Timeout: 2 * patience, MaxIdle: 3})
	set(t, c, total("a", 1, time.Now()))
	slots := c.pool.all[0].slots
	server.Pause(t)
	defer server.Resume(t)
	for n := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan error, 1)
		go func() {
			_, err := c.Get(ctx, []string{"a"})
			answer <- err
		}()
		eventually(t, "the exchange is under way, or waits for a connection", func() bool { return len(slots) == min(n+1, 3) })
		cancel()
		select {
		case err := <-answer:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got error %v, want context.Canceled", err)
			}
		case <-time.After(patience): // half of the time that the exchange may take
			t.Fatal("the call has not returned")
		}
	}
	if n := len(slots); n != 3 {
		t.Errorf("%d exchanges are under way, want MaxIdle, 3", n)
	}
}

func TestOneOfTwoServersDown(t *testing.T) {
	t.Parallel()
	one, two := emulator.Memcached(t), emulator.Memcached(t)
	c := open(t, Config{Servers: []string{one.Host(), two.Host()}})
	var counters []string
	for i := range 100 {
		counters = append(counters, fmt.Sprint(i))
		set(t, c, total(counters[i], int64(i), time.Now()))
	}
	up := 0
	for _, counter := range counters {
		if pick(c.pool.all, c.key(totalKind, counter)).id == one.Host() {
			up++
		}
	}
	two.Stop()
	if got, err := c.Get(t.Context(), counters); err == nil || len(got) != up || up == 0 || up == 100 {
		t.Errorf("got %d totals and error %v, want the %d of the server that is up, and an error", len(got), err, up)
	}
	var totals []cachedTotal
	for _, counter := range counters {
		totals = append(totals, total(counter, 1000, time.Now().Add(time.Hour)))
	}
	if err := c.Set(t.Context(), totals, time.Minute); err == nil {
		t.Error("Set: got no error")
	}
	two.Start(t)
	got, err := c.Get(t.Context(), counters)
	if err != nil || len(got) != up {
		t.Errorf("restarted: got %d totals and error %v, want %d", len(got), err, up)
	}
	for _, g := range got {
		if g.Total != 1000 {
			t.Errorf("got %v, which was set with the other server down", g)
		}
	}
}

// One server that hangs must not use up the time and the connections of the other.
func TestOneOfTwoServersHangs(t *testing.T) {
	t.Parallel()
	one, two := emulator.Memcached(t), emulator.Memcached(t)
	servers := []string{one.Host(), two.Host()}
	c, patient := open(t, Config{Servers: servers, Timeout: time.Second}), open(t, Config{Servers: servers})
	var counters []string
	for i := range 100 {
		counters = append(counters, fmt.Sprint(i))
		set(t, patient, total(counters[i], int64(i), time.Now().Add(time.Hour)))
	}
	two.Pause(t)
	defer two.Resume(t)
	// On a busy machine the answering server may be late too, now and then.
	eventually(t, "totals of the answering server, and an error", func() bool {
		got, err := c.Get(t.Context(), counters)
		if err == nil || len(got) == 100 {
			t.Errorf("got %d totals and error %v, want an error for the server that hangs", len(got), err)
		}
		return len(got) > 0
	})
}

// serve answers every connection with a script: lines in, text out.
func serve(t *testing.T, answer func(line string) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				lines := bufio.NewScanner(c)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					if _, err := c.Write([]byte(answer(lines.Text()))); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func valueLine(key string, value []byte) string {
	return fmt.Sprintf("VALUE %s 0 %d 1\r\n%s\r\nEND\r\n", key, len(value), value)
}

// gomemcache accepts an answer for another key. A total must never be served under the name of another
// counter, whichever way it came. encodedBy is a total in the encoding of a process with that
// configuration.
func encodedBy(t testing.TB, cfg Config, total store.CachedTotal) []byte {
	t.Helper()
	codec, err := newCodec(cfg.Key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := codec.encode(total)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMixedUpAnswerIsAMiss(t *testing.T) {
	t.Parallel()
	var c *Cache
	b := encodedBy(t, Config{}, total("b", 5, time.Now()))
	for name, answer := range map[string]func(asked string) string{
		"another key":                func(string) string { return valueLine(c.key(totalKind, "b"), b) },
		"another counter's value":    func(asked string) string { return valueLine(asked, b) },
		"another key with a's value": func(string) string { return valueLine("x", encodedBy(t, Config{}, total("a", 5, time.Now()))) },
		"not a total":                func(asked string) string { return valueLine(asked, []byte("1")) },
		"a total by another key": func(asked string) string {
			return valueLine(asked, encodedBy(t, Config{Key: [32]byte{1}}, total("a", 5, time.Now())))
		},
		"more than a total can be":     func(asked string) string { return valueLine(asked, make([]byte, maxValue+1)) },
		"nothing":                      func(string) string { return "END\r\n" },
		"an error":                     func(string) string { return "SERVER_ERROR out of memory\r\n" },
		"garbage":                      func(string) string { return "\x00\x01\r\n" },
		"half a value, then a new one": func(asked string) string { return "VALUE " + asked + " 0 100 1\r\n" + "END\r\n" },
	} {
		host := serve(t, func(line string) string { return answer(strings.TrimPrefix(line, "gets ")) })
		timeout := patience
		if strings.HasPrefix(name, "half a value") { // the rest never comes
			timeout = 300 * time.Millisecond
		}
		c = open(t, Config{Servers: []string{host}, Timeout: timeout})
		got, err := c.Get(t.Context(), []string{"a"})
		if len(got) != 0 {
			t.Errorf("%s: got %v, want a miss", name, got)
		}
		if name == "more than a total can be" && !errors.Is(err, errLarge) {
			t.Errorf("%s: got error %v, want %v", name, err, errLarge)
		}
		if harmless := name == "nothing"; (err == nil) != harmless {
			t.Errorf("%s: got error %v", name, err)
		}
		if _, asked := strings.CutPrefix(name, "another"); asked && !errors.Is(err, errMixedUp) {
			t.Errorf("%s: got error %v, want %v", name, err, errMixedUp)
		}
	}
}

// A connection that is one answer behind gives each caller the answer to the call before.
func TestMixedUpConnectionIsDropped(t *testing.T) {
	t.Parallel()
	var answered atomic.Bool
	var c *Cache
	host := serve(t, func(line string) string {
		if !answered.Swap(true) {
			return valueLine(c.key(totalKind, "b"), encodedBy(t, Config{}, total("b", 1, time.Now()))) + "VALUE "
		}
		return valueLine(strings.TrimPrefix(line, "gets "), encodedBy(t, Config{}, total("a", 7, time.Now())))
	})
	c = open(t, Config{Servers: []string{host}})
	if _, err := c.Get(t.Context(), []string{"a"}); !errors.Is(err, errMixedUp) {
		t.Errorf("got error %v, want %v", err, errMixedUp)
	}
	want(t, c, "a", 7)
}

// gomemcache restarts its time-out with every item.
func TestSlowAnswerIsBoundedAsAWhole(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	accepted, ended := make(chan struct{}), make(chan time.Duration, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		close(accepted)
		began := time.Now()
		tick := time.NewTicker(timeout / 4)
		defer tick.Stop()
		for i := 0; time.Since(began) < 2*patience; i++ {
			<-tick.C
			if _, err := fmt.Fprintf(c, "VALUE k%d 0 1 1\r\nx\r\n", i); err != nil {
				break
			}
		}
		ended <- time.Since(began)
	}()
	c := open(t, Config{Servers: []string{l.Addr().String()}, Timeout: timeout})
	eventually(t, "the server is connected", func() bool { // a busy machine may need more than one attempt
		began := time.Now()
		if _, err := c.Get(t.Context(), []string{"a"}); err == nil || time.Since(began) > patience {
			t.Errorf("got error %v after %s, want one after %s", err, time.Since(began), timeout)
		}
		select {
		case <-accepted:
			return true
		default:
			return false
		}
	})
	if took := <-ended; took > patience {
		t.Errorf("the exchange went on for %s, want %s", took, timeout)
	}
}
