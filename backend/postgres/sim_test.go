package postgres_test

import (
	"context"
	crand "crypto/rand"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/countmill/countmill/backend/postgres/rows"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/internal/testing/sim"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
)

var simSeed = flag.Uint64("seed", 0, "of the first schedule; 0 for a fresh one")

// A simMachine has a schema of a server, and loses connections to it. Statements see the schedule's clock in place of the server's.
type simMachine struct {
	*interceptor
	address, schema string
	random          *rand.Rand
	now             func() time.Time
	armed, spared   bool
}

func (m *simMachine) Up() bool { return false }

func (m *simMachine) Open(clock func() time.Time, _ func() time.Duration) (engine.Engine, error) {
	config, err := pgxpool.ParseConfig(m.address)
	if err != nil {
		return nil, err
	}
	m.now = clock
	m.clock.Store(clock().UnixMicro())
	e, err := rows.Open(context.Background(), config, m.schema, protocol.Kinds, rows.Options{Create: true, ViewTime: 10 * time.Minute}) // the server measures it by its own clock
	return simEngine{e, m}, err
}

var simFaults = []string{cutBefore, cutAfter, cutAnswers, pooler, warning, "40001", "40P01", "53100", "57P01", "25006"}

func (m *simMachine) Arm() {
	if m.armed = !m.spared && m.random.IntN(10) == 0; m.armed {
		m.arm(simFaults[m.random.IntN(len(simFaults))], 1+m.random.IntN(12))
	}
}

func (m *simMachine) Lost() bool {
	armed := m.armed
	m.armed = false
	return armed && m.disarm()
}

func (m *simMachine) Spare() { m.spared = true }

// A simEngine has the moments that statements have seen.
type simEngine struct {
	*rows.Engine
	m *simMachine
}

func (e simEngine) Moment() time.Time { return time.UnixMicro(e.m.clock.Load()).UTC() }

// Resume runs before each call and takes over the schedule's time, which the interceptor's goroutines cannot read. No time passes during a call.
func (e simEngine) Resume(at time.Time) {
	e.m.clock.Store(max(e.m.clock.Load(), at.UnixMicro(), e.m.now().UnixMicro()))
}

// Schedules of the simulator run over PostgreSQL, and connections are cut.
func TestSimulated(t *testing.T) {
	t.Parallel()
	simulate(t, 3*time.Second)
}

func TestSimulatedLong(t *testing.T) {
	longtest.Only(t, "it runs schedules for five minutes")
	simulate(t, 5*time.Minute)
}

func simulate(t *testing.T, limit time.Duration) {
	t.Helper()
	address := emulator.Postgres(t)
	// A call that waits for a connection would wait for ever: only one goes on at a time. And nothing is to happen while hours pass.
	proxy, schema := intercept(t, host(t, address)), "test_"+strings.ToLower(crand.Text())
	address = strings.Replace(address, host(t, address), proxy.listener.Addr().String(), 1) +
		"&pool_max_conns=200&pool_max_conn_lifetime=1000000h&pool_max_conn_idle_time=1000000h&pool_health_check_period=1000000h"
	sim.Schedules(t, limit, *simSeed, func(seed uint64) sim.Machine {
		exec(t, "do $$ declare t record; begin for t in select * from pg_tables where schemaname = '"+schema+"' and tablename <> 'countmill_format' loop execute format('delete from %I.%I', t.schemaname, t.tablename); end loop; end $$")
		return &simMachine{interceptor: proxy, address: address, schema: schema, random: rand.New(rand.NewPCG(seed, 0x706f737467726573))}
	})
}
