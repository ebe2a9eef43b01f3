package agentproc

// Finding processes in /proc: by their session and group, and by the mark in their environment.

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endWithParent has the leader end with the process that started it, however that ends.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }

// identify returns the identity of a process that was started and not waited for.
func identify(mark string, pid int) Identity {
	id := Identity{Mark: mark, PID: pid, Boot: boot()}
	if s, ok := status(pid); ok {
		id.Start = s.start
	}
	return id
}

// NewIdentity returns what a process that is going to be started can be found by.
func NewIdentity(mark string) Identity { return Identity{Mark: mark, Boot: boot()} }

func boot() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // unreadable: ""
	return strings.TrimSpace(string(b))
}

// EndLeft ends what is left of a process whose starter is gone: SIGTERM, and SIGKILL after grace. When it returns nil
// nothing of it runs. The error is an ErrLeft.
func EndLeft(id Identity, grace time.Duration) error {
	if id.Boot != boot() {
		return nil // the system has been started since
	}
	seen := known{}
	f := running(id, false, seen)
	for _, pid := range f.ours {
		signalTo(id, pid, syscall.SIGTERM)
	}
	for end := time.Now().Add(grace); len(f.ours) > 0 && time.Now().Before(end); f = running(id, false, seen) {
		time.Sleep(5 * time.Millisecond)
	}
	return endAll(id, false, seen, killWait)
}

// stat is what /proc/PID/stat says of a process.
type stat struct {
	state          byte
	group, session int
	kernel         bool   // no program
	start          uint64 // in ticks since the system's start
}

// status returns what is known of a process; false if there is none.
func status(pid int) (s stat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	after := text[bytes.LastIndexByte(text, ')')+1:] // its name may have anything in it
	f := strings.Fields(string(after))
	if err != nil || len(f) < 20 {
		return stat{}, false
	}
	s.state = f[0][0]
	s.group, _ = strconv.Atoi(f[2])
	s.session, _ = strconv.Atoi(f[3])
	flags, _ := strconv.ParseUint(f[6], 10, 64)
	s.kernel = flags&0x200000 != 0 // PF_KTHREAD
	s.start, err = strconv.ParseUint(f[19], 10, 64)
	return s, err == nil
}

// ended reports whether a process only waits to be asked how it ended.
func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' }

// running finds the processes of an identity. leads says that a group of the leader's number is the leader's for certain,
// though the leader has ended. seen is what earlier calls have found: of a process that is ending nothing can be read.
func running(id Identity, leads bool, seen known) (f found) {
	leader, there := status(id.PID)
	others := there && leader.start != id.Start // who gets a number only once no group and no session has it
	leads = there && !others || leads && !there
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		s, ok := status(pid)
		if !ok || s.ended() || s.kernel {
			continue
		}
		marked, unread := marked(pid, id.Mark)
		member := id.PID != 0 && (s.group == id.PID || s.session == id.PID)
		switch {
		case marked || member && leads || seen[pid] == s.start && s.start != 0:
			seen[pid] = s.start
			f.ours = append(f.ours, pid)
		case member && !others:
			f.doubtful = append(f.doubtful, pid)
		case unread && s.start >= id.Start:
			f.unread = true
		}
	}
	return f
}

// marked reports whether a process was started with a mark. unread says that it has no environment: it may be about to
// become another program, and get one.
func marked(pid int, mark string) (yes, unread bool) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || mark == "" {
		return false, false // another user's
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if marks, ok := bytes.CutPrefix(v, []byte(MarkVar+"=")); ok && bytes.Contains(marks, []byte(mark)) {
			return true, false
		}
	}
	return false, len(env) == 0
}

// signalTo signals a process that running has found, unless its number has gone to another meanwhile.
func signalTo(id Identity, pid int, sig syscall.Signal) {
	was, there := status(pid)
	p, err := os.FindProcess(pid) // holds the process, not the number
	if err != nil || !there {
		return
	}
	defer p.Release()
	if now, ok := status(pid); ok && now.start == was.start {
		_ = p.Signal(sig) // it has ended, or is another user's
	}
}
