//go:build unix

// The folder of throw-away clusters of one user, and who may use or remove what
// in it.
//
//	BASE/lock            locked (exclusively) by whoever creates or removes
//	BASE/shared          the name of the cluster that processes share
//	BASE/c-XXXX/lease    locked (shared) by each process that uses the cluster
//	BASE/c-XXXX/url      the shared cluster's URL, written when it answers
//	BASE/c-XXXX/data, log
//
// Both locks are flock(2) locks, so the kernel drops them with the process that
// holds them. Whoever holds the lock of BASE and gets a cluster's lease
// exclusively knows that nobody uses the cluster, and may remove it.

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// idle is how long the shared cluster stays after its last user: long enough
// for the next test binary of a "go test ./..." to be built.
const idle = 30 * time.Second

// pool is a folder of clusters.
type pool struct {
	base    string
	account account
	idle    time.Duration
}

// defaultPool returns the user's pool in the first temporary folder that the
// server's account can enter.
func defaultPool() (*pool, error) {
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	var tried []string
	for _, tmp := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if acct.command(context.Background(), "/", "/bin/sh", "-c", `cd "$1"`, "sh", tmp).Run() != nil {
			tried = append(tried, tmp)
			continue
		}
		return openPool(filepath.Join(tmp, "mooring-pgtest-"+strconv.Itoa(os.Geteuid())), acct, idle)
	}
	return nil, fmt.Errorf("user %s can enter none of %s; set TMPDIR to a folder it can, or %s to a server's URL",
		acct.name, strings.Join(tried, ", "), EnvURL)
}

// openPool makes the folder if need be. It refuses one that another user made
// or may write to: the clusters' programs and secrets are in there.
func openPool(base string, acct account, idle time.Duration) (*pool, error) {
	if err := os.Mkdir(base, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	info, err := os.Lstat(base)
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s is not a folder that only you can write to; remove it", base)
	}
	// Undoes the umask: the server's account must be able to enter.
	if err := os.Chmod(base, 0o711); err != nil {
		return nil, err
	}
	return &pool{base: base, account: acct, idle: idle}, nil
}

// shared returns the URL of the pool's shared cluster and a lease on it, after
// starting the cluster if it does not run. The cluster stays until the lease is
// closed, by hand or by the end of the process, and for p.idle after that.
func (p *pool) shared(ctx context.Context) (string, *os.File, error) {
	lock, err := p.lock()
	if err != nil {
		return "", nil, err
	}
	defer lock.Close()
	current := filepath.Join(p.base, "shared")
	if name, err := os.ReadFile(current); err == nil {
		if url, lease := p.join(ctx, filepath.Join(p.base, filepath.Base(string(name)))); lease != nil {
			return url, lease, nil
		}
	}
	p.sweep()
	c, lease, err := p.make(ctx, p.idle)
	if err != nil {
		return "", nil, err
	}
	err = c.create(ctx)
	if err == nil {
		err = c.start(ctx)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(c.dir, "url"), []byte(c.url()), 0o600)
	}
	if err == nil {
		err = os.WriteFile(current, []byte(filepath.Base(c.dir)), 0o600)
	}
	if err != nil {
		lease.Close()
		return "", nil, errors.Join(err, remove(c.dir))
	}
	return c.url(), lease, nil
}

// join takes a lease on a cluster that runs; nil if it does not.
func (p *pool) join(ctx context.Context, dir string) (string, *os.File) {
	lease, err := lockFile(filepath.Join(dir, "lease"), os.O_RDWR, syscall.LOCK_SH)
	if err != nil {
		return "", nil
	}
	url, err := os.ReadFile(filepath.Join(dir, "url"))
	if err != nil || ping(ctx, string(url)) != nil {
		lease.Close()
		return "", nil
	}
	return string(url), lease
}

// private makes a cluster that is not shared and does not run yet. When the
// lease goes, so does the cluster.
func (p *pool) private(ctx context.Context) (*cluster, *os.File, error) {
	lock, err := p.lock()
	if err != nil {
		return nil, nil, err
	}
	p.sweep()
	c, lease, err := p.make(ctx, 0)
	lock.Close() // initdb needs no lock: the lease protects the folder
	if err != nil {
		return nil, nil, err
	}
	if err := c.create(ctx); err != nil {
		lease.Close()
		return nil, nil, errors.Join(err, remove(c.dir))
	}
	return c, lease, nil
}

// make makes a cluster's folder, with a lease on it and a watchdog for it. The
// caller holds the lock.
func (p *pool) make(ctx context.Context, idle time.Duration) (*cluster, *os.File, error) {
	bin, err := thisMachine().findOrInstall(ctx, os.Geteuid() == 0)
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(p.base, "c-"+randomHex(6))
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, nil, err
	}
	lease, err := lockFile(filepath.Join(dir, "lease"), os.O_RDWR|os.O_CREATE, syscall.LOCK_SH)
	if err != nil {
		return nil, nil, errors.Join(err, remove(dir))
	}
	if err := startWatchdog(dir, idle); err != nil {
		lease.Close()
		return nil, nil, errors.Join(err, remove(dir))
	}
	return &cluster{dir: dir, bin: bin, account: p.account}, lease, nil
}

// sweep removes the clusters that nobody uses and whose watchdog is gone, as
// after a power cut. The caller holds the lock.
func (p *pool) sweep() {
	dirs, err := filepath.Glob(filepath.Join(p.base, "c-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		lease, err := lockFile(filepath.Join(dir, "lease"), os.O_RDWR, syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			remove(dir)
			lease.Close()
		case errors.Is(err, os.ErrNotExist):
			remove(dir)
		}
	}
}

// lock locks the pool until the file is closed.
func (p *pool) lock() (*os.File, error) {
	return lockFile(filepath.Join(p.base, "lock"), os.O_RDWR|os.O_CREATE, syscall.LOCK_EX)
}

// lockFile opens and locks a file; closing it unlocks.
func lockFile(path string, flag, how int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
	}
}
