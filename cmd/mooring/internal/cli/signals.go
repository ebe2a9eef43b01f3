// Signals: they end a command, or make a server reload its files.

package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Signals are the process's signals, as its command handles them.
type Signals struct {
	ending chan os.Signal
	reload atomic.Bool // SIGHUP does not end the process
	nohup  bool
}

// CatchSignals calls end at Ctrl-C, SIGTERM and the end of the terminal (SIGHUP, unless nohup
// ignores it). A second signal kills the process.
func CatchSignals(end context.CancelFunc) *Signals {
	s := &Signals{ending: make(chan os.Signal, 1), nohup: signal.Ignored(syscall.SIGHUP)}
	signal.Notify(s.ending, os.Interrupt, syscall.SIGTERM)
	if !s.nohup {
		signal.Notify(s.ending, syscall.SIGHUP)
	}
	go func() {
		for sig := range s.ending {
			if sig == syscall.SIGHUP && s.reload.Load() {
				continue
			}
			signal.Stop(s.ending) // later signals have their default effect
			end()
			return
		}
	}()
	return s
}

// OutliveReader has a write to a pipe that nobody reads any more fail, until stop is called, which otherwise ends the process if it is
// its output.
func (s *Signals) OutliveReader() (stop func()) {
	if s == nil {
		return func() {}
	}
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}

// Hangups returns a channel of the SIGHUPs that ask a server to reload its files: from now on
// SIGHUP does not end the process. It is nil if SIGHUP means the end of a terminal, or is ignored
// by nohup, or if there is no process of its own (s is nil).
func (s *Signals) Hangups() <-chan os.Signal {
	if s == nil || s.nohup || hasTerminal() {
		return nil
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	s.reload.Store(true)
	return asked
}

// hasTerminal reports whether the process has a controlling terminal.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = tty.Close() // nothing was written
	return true
}
