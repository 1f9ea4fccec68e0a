package emulator

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
)

var postgres struct {
	once   sync.Once
	url    string
	err    error
	server *serverProcess
}

// Postgres returns the URL of a PostgreSQL server, and starts it where no test has yet. It has durable commits and an empty
// database. Tests keep out of each other's way by a schema of their own each.
func Postgres(t testing.TB) string {
	t.Helper()
	postgres.once.Do(func() {
		switch postgres.url = os.Getenv("COUNTMILL_TEST_POSTGRES"); postgres.url {
		case "off":
			postgres.err = fmt.Errorf("%w by COUNTMILL_TEST_POSTGRES", errOff)
		case "":
			if postgres.url, postgres.server, postgres.err = startPostgres(); postgres.err == nil {
				children.add(postgres.server)
			}
		}
	})
	switch err := postgres.err; {
	case errors.Is(err, errOff), errors.Is(err, errMissing) && !required():
		t.Skipf("PostgreSQL is %v", err)
	case err != nil:
		t.Fatalf("PostgreSQL: %v", err)
	}
	return postgres.url
}

// PostgresSchema returns the URL of a schema of its own on that server.
func PostgresSchema(t testing.TB) string {
	t.Helper()
	return Postgres(t) + "&pool_max_conns=8&schema=test_" + strings.ToLower(rand.Text())
}

// postgresPath returns the path of a program of PostgreSQL.
func postgresPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("%w: no program %s", errMissing, name)
	}
	return slices.Max(found), nil
}

// startPostgres makes a database in a temporary directory, and serves it on a port of the loopback interface.
func startPostgres() (url string, server *serverProcess, err error) {
	initdb, err := postgresPath("initdb")
	if err != nil {
		return "", nil, err
	}
	parent := os.TempDir()
	if os.Getuid() == 0 {
		parent = "/tmp" // that of root may be closed to the user postgres
	}
	dir, err := os.MkdirTemp(parent, "countmill-postgres-")
	if err != nil {
		return "", nil, err
	}
	attr, err := asPostgres(dir)
	data := filepath.Join(dir, "data")
	if err == nil {
		cmd := exec.Command(initdb, "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
		cmd.SysProcAttr, cmd.Dir = attr, dir
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("initdb: %w\n%s", err, out)
		}
	}
	port, portErr := child.KeepPort() // until this process ends
	if err = errors.Join(err, portErr); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data, "-p", strconv.Itoa(port.Number()), "-k", "",
		"-c", "lc_messages=C", "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=400", "-c", "dynamic_shared_memory_type=mmap", "-c", "shared_buffers=256MB")
	cmd.SysProcAttr = attr
	if server, err = runIn(dir, cmd); err != nil {
		return "", nil, err
	}
	server.signal = syscall.SIGQUIT // it ends its own processes
	if err := server.accepts(); err != nil {
		server.stop()
		return "", nil, err
	}
	return "postgres://postgres@" + port.Addr() + "/postgres?sslmode=disable", server, nil
}

// asPostgres gives a directory to the user postgres if this process is root's, which PostgreSQL refuses.
func asPostgres(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMissing, err)
	}
	uid, uidErr := strconv.Atoi(who.Uid)
	gid, gidErr := strconv.Atoi(who.Gid)
	if err := errors.Join(uidErr, gidErr, os.Chown(dir, uid, gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// accepts waits until the server accepts connections.
func (c *serverProcess) accepts() error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(starting)
	for {
		select {
		case <-tick.C:
			if strings.Contains(c.printed(), "database system is ready to accept connections") {
				return nil
			}
		case <-c.ended:
			return fmt.Errorf("ended at once:\n%s", c.printed())
		case <-deadline:
			return fmt.Errorf("not ready within %s:\n%s", starting, c.printed())
		}
	}
}
