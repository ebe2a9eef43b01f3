//go:build unix

package agentproc

// Starting a process as the leader of a session and group of its own, and signals to that group.

import (
	"runtime"
	"syscall"
	"time"
)

// platform is what the process is here.
type platform struct{ group int }

// prepare makes the process the leader of a session: it has no terminal that it could stop for, or be stopped by.
func (p *Process) prepare() (unlock func()) {
	runtime.LockOSThread()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	endWithParent(p.cmd.SysProcAttr)
	return runtime.UnlockOSThread
}

func (p *Process) adopt() error {
	p.group = p.cmd.Process.Pid
	p.id = identify(p.cfg.Mark, p.cmd.Process.Pid)
	return nil
}

func (p *Process) terminate() {
	_ = syscall.Kill(-p.group, syscall.SIGTERM) // ESRCH: it has ended
}

// kill kills until nothing runs any more: what forks while it is killed is found in the next round.
func (p *Process) kill(most time.Duration) error {
	return endAll(p.id, true, known{}, most)
}

// found is which processes of an identity run.
type found struct {
	ours     []int // for certain
	doubtful []int // in a group of the leader's number
	unread   bool  // there are others of which it cannot be told yet
}

// known is processes that were found, with their start times.
type known map[int]uint64

// settleWait is how long a process may take to become another program.
const settleWait = 200 * time.Millisecond

// endAll kills what running finds until that is nothing.
func endAll(id Identity, leads bool, seen known, most time.Duration) error {
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		f := running(id, leads, seen)
		switch took := time.Since(begun); {
		case len(f.ours) == 0 && f.unread && took < settleWait:
		case len(f.ours) == 0 && len(f.doubtful) == 0:
			return nil
		case len(f.ours) == 0:
			return leftError(f.doubtful, "it is not certain that these are the agent's")
		case took > most:
			return leftError(f.ours, "they do not end, though they were killed")
		}
		for _, pid := range f.ours {
			signalTo(id, pid, syscall.SIGKILL)
		}
		time.Sleep(pause)
	}
}
