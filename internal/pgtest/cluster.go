//go:build unix

// One throw-away cluster: making it, starting it, stopping it.

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// superuser is the owner of every throw-away cluster.
const superuser = "mooring"

// startTimeout bounds a start, recovery after a kill included.
const startTimeout = 60 * time.Second

// account is whom initdb and postgres run as. Its zero value is the caller.
type account struct {
	name     string
	uid, gid uint32
}

// serverAccount returns an unprivileged account when the caller is root, whom
// initdb refuses, and the zero value otherwise.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root and there is no user postgres or nobody to run it as; "+
		"make one, or set %s to a server's URL", EnvURL)
}

// command prepares a program that runs as the account, in a session of its own
// so that a terminal's Ctrl-C does not reach it, and without our PG* settings.
func (a account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "LC_") && !strings.HasPrefix(entry, "LANG") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return cmd
}

// chown hands a file or folder to the account.
func (a account) chown(path string) error {
	if a.uid == 0 {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// cluster is a data folder and, while it runs, its server process. Its methods
// are not safe together; the owner sees to that.
//
// The folder holds: data (PostgreSQL's), log (what the server said), lease (see
// pool.go) and, in a shared cluster, url.
type cluster struct {
	dir      string
	bin      string // PostgreSQL's programs
	account  account
	password string
	port     int // 0 until the first start; kept from then on
	pid      int // 0 while it is not running
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// url returns the URL of the cluster's first database, postgres.
func (c *cluster) url() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, c.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// create runs initdb in the cluster's folder, which must exist. Only initdb
// itself goes without fsync; the server has it on.
func (c *cluster) create(ctx context.Context) error {
	c.password = randomHex(16)
	secret := filepath.Join(c.dir, "password")
	if err := os.WriteFile(secret, []byte(c.password+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(secret)
	if err := os.Mkdir(c.data(), 0o700); err != nil {
		return err
	}
	if err := errors.Join(c.account.chown(secret), c.account.chown(c.data())); err != nil {
		return err
	}
	initdb := c.account.command(ctx, c.dir, filepath.Join(c.bin, "initdb"),
		"--pgdata", c.data(), "--username", superuser, "--pwfile", secret, "--auth", "password",
		"--encoding", "UTF8", "--locale", "C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, tail(out))
	}
	return nil
}

// start starts the server and returns when it answers. Losing a race for the
// port, or coming too early after a kill while the dead server's processes are
// still going, is tried again until startTimeout is over.
func (c *cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	firstStart := c.port == 0
	for {
		if firstStart {
			port, err := freePort()
			if err != nil {
				return err
			}
			c.port = port
		}
		if err := c.launch(ctx); err != nil {
			return err
		}
		err := c.awaitReady(ctx)
		if err == nil {
			return nil
		}
		if c.pid != 0 {
			c.kill()
		}
		if ctx.Err() != nil {
			said, _ := os.ReadFile(c.log())
			return fmt.Errorf("postgres does not start: %w; its log ends:\n%s", err, tail(said))
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func (c *cluster) log() string { return filepath.Join(c.dir, "log") }

// launch starts the server process; nothing waits for it but stop and kill.
func (c *cluster) launch(ctx context.Context) error {
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// Not tied to ctx: the server outlives the start.
	cmd := c.account.command(context.WithoutCancel(ctx), c.dir, filepath.Join(c.bin, "postgres"),
		"-D", c.data(),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "port="+strconv.Itoa(c.port),
		"-c", "unix_socket_directories=", // a path of ours may be too long for a socket
		"-c", "max_connections=300",
		"-c", "fsync=on",
		"-c", "synchronous_commit=on",
		"-c", "full_page_writes=on",
		"-c", "logging_collector=off",
	)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	c.pid = cmd.Process.Pid
	return cmd.Process.Release()
}

// awaitReady returns when the server answers a query; the error tells if it
// ended instead, in which case pid is 0.
func (c *cluster) awaitReady(ctx context.Context) error {
	for {
		err := ping(ctx, c.url())
		if err == nil {
			return nil
		}
		if status, gone := reap(c.pid, syscall.WNOHANG); gone {
			c.pid = 0
			return fmt.Errorf("it ended with status %d", status)
		}
		if ctx.Err() != nil {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// stop ends the server as a shutdown would: connections are cut, what is
// committed is written out. It returns when the process has ended.
func (c *cluster) stop() error { return c.end(syscall.SIGINT) }

// kill ends the server's main process with SIGKILL, as a crash would; the others
// notice and end by themselves.
// kill ends the server and its backends. Killing the postmaster alone would
// leave backends that go on to commit until they notice.
func (c *cluster) kill() error {
	if c.pid == 0 {
		return nil
	}
	if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil { // it starts no others meanwhile
		return fmt.Errorf("end postgres: %w", err)
	}
	for _, pid := range children(c.pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // or it is gone already
	}
	return c.end(syscall.SIGKILL)
}

// children lists the processes whose parent is pid.
func children(pid int) (pids []int) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil { // a system without ps
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range stats {
			text, _ := os.ReadFile(path)
			if _, rest, ok := strings.Cut(string(text), ") "); ok { // behind the program's name: state, parent
				var state string
				var parent int
				_, _ = fmt.Sscan(rest, &state, &parent)
				out = fmt.Appendf(out, "%s %d\n", filepath.Base(filepath.Dir(path)), parent)
			}
		}
	}
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if n, _ := fmt.Sscan(line, &child, &parent); n == 2 && parent == pid {
			pids = append(pids, child)
		}
	}
	return pids
}

func (c *cluster) end(signal syscall.Signal) error {
	if c.pid == 0 {
		return nil
	}
	if err := syscall.Kill(c.pid, signal); err != nil {
		return fmt.Errorf("end postgres: %w", err)
	}
	reap(c.pid, 0)
	c.pid = 0
	return nil
}

// reap collects a child that has ended; with WNOHANG it does not wait for that.
func reap(pid, options int) (status int, gone bool) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(pid, &ws, options, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, true // no such child
		default:
			return ws.ExitStatus(), got == pid
		}
	}
}

// ping reports whether the server answers a query within two seconds.
func ping(ctx context.Context, serverURL string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.Ping(ctx)
}

// freePort returns a TCP port of 127.0.0.1 that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
