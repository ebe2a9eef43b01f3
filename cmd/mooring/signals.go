// Signals: what ends a command, and what has a server read its files again.

package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// signals are those that a process gets, for its command.
type signals struct {
	ending chan os.Signal
	reload atomic.Bool // SIGHUP ends nothing
	nohup  bool
}

// catchSignals has end called at Ctrl-C, SIGTERM and the end of the terminal. A second
// one kills. nohup keeps the last of these from a process.
func catchSignals(end context.CancelFunc) *signals {
	s := &signals{ending: make(chan os.Signal, 1), nohup: signal.Ignored(syscall.SIGHUP)}
	signal.Notify(s.ending, os.Interrupt, syscall.SIGTERM)
	if !s.nohup {
		signal.Notify(s.ending, syscall.SIGHUP)
	}
	go func() {
		for sig := range s.ending {
			if sig == syscall.SIGHUP && s.reload.Load() {
				continue
			}
			signal.Stop(s.ending) // from now on signals have their default effect again
			end()
			return
		}
	}()
	return s
}

// hangups gives each SIGHUP that asks a server to read its files again: from now on
// those end nothing. It is nil where SIGHUP is the end of a terminal, or kept away by
// nohup, or where there is no process of one's own (s is nil).
func (s *signals) hangups() <-chan os.Signal {
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
