package emulator

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
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

	"github.com/countmill/countmill/internal/testing/child"
)

var postgres struct {
	once sync.Once
	url  string
	err  error
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
			var s *PostgresServer
			if s, postgres.err = newPostgres(); postgres.err == nil {
				postgres.url = s.URL
				children.add(s)
			}
		}
	})
	without(t, "PostgreSQL", postgres.err)
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
		return "", fmt.Errorf("%w: no program %s", ErrMissing, name)
	}
	return slices.Max(found), nil
}

// A PostgresServer is a server on a port of the loopback interface, which stays the same when it is started again.
type PostgresServer struct {
	URL string

	dir   string // of the data
	attr  *syscall.SysProcAttr
	port  *child.Port
	child *serverProcess // nil while it is stopped
	guard *child.Guard   // of the directory
}

// NewPostgres starts a server for one test alone.
func NewPostgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	s, err := newPostgres(settings...)
	without(t, "PostgreSQL", err)
	t.Cleanup(s.stop)
	return s
}

// newPostgres makes a database in a temporary directory, and starts its server.
func newPostgres(settings ...string) (s *PostgresServer, err error) {
	s = &PostgresServer{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err = s.place(); err == nil {
		err = s.run("initdb", "-D", s.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
	}
	if err == nil {
		err = s.Set(append([]string{"lc_messages = 'C'", "listen_addresses = '127.0.0.1'", "unix_socket_directories = ''", "max_connections = 400",
			"dynamic_shared_memory_type = mmap", "shared_buffers = '256MB'", "port = " + strconv.Itoa(s.port.Number())}, settings...)...)
	}
	if err == nil {
		err = s.Start()
	}
	return s, err
}

// place makes the directory, and takes a port until this process ends.
func (s *PostgresServer) place() (err error) {
	parent := os.TempDir()
	if os.Getuid() == 0 {
		parent = "/tmp" // that of root may be closed to the user postgres
	}
	if s.dir, err = os.MkdirTemp(parent, "countmill-postgres-"); err != nil {
		return err
	}
	if s.guard, err = child.GuardDirs(s.dir); err == nil {
		s.attr, err = asPostgres(s.dir)
	}
	if err == nil {
		s.port, err = child.KeepPort()
	}
	if err == nil {
		s.URL = "postgres://postgres@" + s.port.Addr() + "/postgres?sslmode=disable"
	}
	return err
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

// run runs a program of PostgreSQL to its end.
func (s *PostgresServer) run(program string, args ...string) error {
	path, err := postgresPath(program)
	if err != nil {
		return err
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr, cmd.Dir = s.attr, s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// Set adds settings, which the next start reads.
func (s *PostgresServer) Set(settings ...string) error {
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + strings.Join(settings, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// Start starts a server that is stopped or has ended, and waits until it accepts connections.
func (s *PostgresServer) Start() error {
	s.Crash()
	path, err := postgresPath("postgres")
	if err != nil {
		return err
	}
	return s.serve("database system is ready to accept", path, "-D", s.data())
}

// serve starts a program, and waits until it prints that it is ready.
func (s *PostgresServer) serve(ready, path string, args ...string) error {
	logs, err := os.MkdirTemp(s.dir, "log-")
	if err == nil {
		_, err = asPostgres(logs)
	}
	if err != nil {
		return err
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = s.attr
	if s.child, err = runIn(logs, cmd); err != nil {
		return err
	}
	s.child.signal = syscall.SIGQUIT // it ends its own processes, and leaves the rest to a recovery
	return s.child.ready(func() bool { return strings.Contains(s.child.printed(), ready) })
}

// Crash ends the server at once, without a checkpoint.
func (s *PostgresServer) Crash() {
	if s.child != nil {
		s.child.stop()
		s.child = nil
	}
}

// MoveWAL moves the WAL to an empty directory of another disk. The server is stopped meanwhile.
func (s *PostgresServer) MoveWAL(dir string) error {
	s.Crash()
	wal := filepath.Join(s.data(), "pg_wal")
	if out, err := exec.Command("cp", "-a", wal+"/.", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := errors.Join(os.RemoveAll(wal), os.Symlink(dir, wal)); err != nil {
		return err
	}
	return s.Start()
}

// Ended reports whether the server has ended by itself.
func (s *PostgresServer) Ended() bool {
	select {
	case <-s.child.ended:
		return true
	default:
		return false
	}
}

// Standby starts a copy of a server, which follows it until it is promoted. It ends with the test.
func (s *PostgresServer) Standby(t testing.TB) *PostgresServer {
	t.Helper()
	n := &PostgresServer{}
	t.Cleanup(n.stop)
	err := n.place()
	if err == nil {
		err = n.run("pg_basebackup", "-D", n.data(), "-R", "-X", "stream", "-c", "fast", "-d", s.URL)
	}
	if err == nil {
		err = n.Set("port = " + strconv.Itoa(n.port.Number()))
	}
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		t.Fatalf("a standby: %v", err)
	}
	return n
}

func (s *PostgresServer) stop() {
	s.Crash()
	if s.guard != nil {
		s.guard.End()
	}
	if s.port != nil {
		_ = s.port.Free()
	}
	_ = os.RemoveAll(s.dir)
}

// PostgresDisk mounts a disk of its own size, in memory, which belongs to the server's user.
func PostgresDisk(t testing.TB, size int) (dir string) {
	t.Helper()
	who, err := user.Lookup("postgres")
	if err != nil || os.Getuid() != 0 {
		t.Skipf("no small disk: only root mounts one, and gives it to the user postgres (%v)", err)
	}
	if dir, err = os.MkdirTemp("/tmp", "countmill-disk-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=700,uid=%s", size, who.Uid), "none", dir).CombinedOutput(); err != nil {
		t.Skipf("no small disk: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	return dir
}

// asPostgres gives a directory to the user postgres if this process is root's, which PostgreSQL refuses.
func asPostgres(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	uid, uidErr := strconv.Atoi(who.Uid)
	gid, gidErr := strconv.Atoi(who.Gid)
	if err := errors.Join(uidErr, gidErr, os.Chown(dir, uid, gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// Bouncer starts a PgBouncer in transaction mode before the server of a URL, and returns its URL. It ends with the test.
func Bouncer(t testing.TB, address string) string {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		without(t, "PgBouncer", fmt.Errorf("%w: %w", ErrMissing, err))
	}
	server, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	s := &PostgresServer{}
	t.Cleanup(s.stop)
	if err := s.place(); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(s.dir, "pgbouncer.ini")
	err = os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=%s port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 40
ignore_startup_parameters = extra_float_digits
`, server.Hostname(), server.Port(), s.port.Number()), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.serve("process up", path, config); err != nil {
		t.Fatal(err)
	}
	server.Host = s.port.Addr()
	return server.String()
}
