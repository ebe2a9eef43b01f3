//go:build unix

// The watchdog: a process that outlives the tests and clears up after them,
// however they end. It is this very program, started again with a variable set
// that makes it a watchdog before main or any test runs.

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	envWatch = "MOORING_PGTEST_WATCH" // the cluster's folder
	envIdle  = "MOORING_PGTEST_IDLE"  // how long it may stay unused
)

func init() {
	dir := os.Getenv(envWatch)
	if dir == "" {
		return
	}
	idle, err := time.ParseDuration(os.Getenv(envIdle))
	if err == nil {
		err = watch(dir, idle)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest watchdog:", err) // goes to the cluster's log
		os.Exit(1)
	}
	os.Exit(0)
}

// startWatchdog starts the watchdog of the cluster in dir. Nothing waits for it.
func startWatchdog(dir string, idle time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), envWatch+"="+dir, envIdle+"="+idle.String())
	// Its own session and no pipe of ours: "go test" waits for neither.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start watchdog: %w", err)
	}
	return cmd.Process.Release()
}

// watch returns once the cluster in dir is gone, after removing it when nobody
// has held its lease for the time given.
func watch(dir string, idle time.Duration) error {
	lock := filepath.Join(filepath.Dir(dir), "lock")
	lease := filepath.Join(dir, "lease")
	unusedSince := time.Time{}
	for {
		f, err := lockFile(lease, os.O_RDWR, syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil:
			unusedSince = time.Time{}
		default:
			f.Close()
			if unusedSince.IsZero() {
				unusedSince = time.Now()
			}
			if time.Since(unusedSince) >= idle {
				if err := removeUnused(lock, lease); err != nil {
					return err
				}
			}
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// removeUnused removes the lease's cluster if it is still unused. The lock is
// taken first and the lease is not held while waiting for it, as everywhere.
func removeUnused(lock, lease string) error {
	l, err := lockFile(lock, os.O_RDWR, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer l.Close()
	f, err := lockFile(lease, os.O_RDWR, syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return nil // in use again, or gone
	}
	defer f.Close()
	return remove(filepath.Dir(lease))
}

// remove ends whatever server runs in a cluster's folder and removes the folder.
func remove(dir string) error {
	data := filepath.Join(dir, "data")
	if pid := serverPid(data); pid != 0 {
		syscall.Kill(pid, syscall.SIGQUIT) // immediate shutdown: the data is thrown away
		deadline := time.Now().Add(10 * time.Second)
		for serverPid(data) == pid {
			if time.Now().After(deadline) {
				syscall.Kill(pid, syscall.SIGKILL)
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	// Processes on their way out may still write a file.
	var err error
	for range 20 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// serverPid returns the process that serves the data folder, or 0. A pid file
// left by a dead server may name a process that has nothing to do with it.
func serverPid(data string) int {
	file, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(file), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 || syscall.Kill(pid, 0) != nil {
		return 0
	}
	if runtime.GOOS == "linux" {
		// A server's working folder is its data folder. A dead child has none.
		cwd, err1 := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
		own, err2 := os.Stat(data)
		if err1 != nil || err2 != nil || !os.SameFile(cwd, own) {
			return 0
		}
	}
	return pid
}
