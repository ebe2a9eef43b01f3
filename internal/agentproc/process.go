package agentproc

// A running process: its start, its lines in both directions and its end.

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/internal/defaults"
)

// MarkVar names the environment variable that has the mark of the process and of what it has started.
const MarkVar = "MOORING_AGENT_MARK"

// Config is how a process is started.
type Config struct {
	Command []string // the program and its arguments; at least one
	Dir     string   // its working folder; "" is the caller's
	Env     []string // its environment; nil is the caller's
	Mark    string   // NewMark

	MaxLine     int           // bytes of a line that it may print; default 16 MiB
	StderrBytes int           // how much of its standard error is kept; default 16 KiB
	Grace       time.Duration // how long it has to end by itself, and then after SIGTERM; default 3 s each
	WriteWait   time.Duration // how long a line may wait for it to read; default 30 s
}

// Bounds that no configuration changes.
const (
	queuedLines = 256
	queuedBytes = 32 << 20
	killWait    = 10 * time.Second // for a killed process to be gone
)

// NewMark returns a new random mark.
func NewMark() string { return rand.Text() }

// ErrStuck is reported when the process does not read its standard input.
var ErrStuck = errors.New("the agent does not read its standard input")

// line is a line to be written.
type line struct {
	text []byte // with its line feed
	done func(error)
}

// Process is a process that was started. Its methods may be called concurrently, but for ReadLine.
type Process struct {
	cfg Config
	cmd *exec.Cmd
	id  Identity

	in, out *os.File
	lines   *LineReader
	stderr  tail
	platform

	exited  chan struct{} // the leader has ended
	exitErr error         // of Wait; read once exited is closed

	mu      sync.Mutex
	queue   []line
	queued  int // bytes
	closing bool
	sendErr error
	wake    chan struct{} // has room for one
	writes  chan struct{} // closed when the writer has returned

	endOnce sync.Once
	endErr  error
}

// Start starts a process. The caller must call End.
func Start(cfg Config) (*Process, error) {
	if len(cfg.Command) == 0 || cfg.Mark == "" {
		return nil, errors.New("agentproc: no command, or no mark")
	}
	defaults.Set(&cfg.MaxLine, 16<<20)
	defaults.Set(&cfg.StderrBytes, 16<<10)
	defaults.Set(&cfg.Grace, 3*time.Second)
	defaults.Set(&cfg.WriteWait, 30*time.Second)
	p := &Process{cfg: cfg, exited: make(chan struct{}), wake: make(chan struct{}, 1), writes: make(chan struct{})}
	p.stderr.max = cfg.StderrBytes
	env := cfg.Env
	if env == nil {
		env = os.Environ()
	}
	p.cmd = exec.Command(cfg.Command[0], cfg.Command[1:]...)
	p.cmd.Dir, p.cmd.Env = cfg.Dir, append(env[:len(env):len(env)], MarkVar+"="+os.Getenv(MarkVar)+" "+cfg.Mark)
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		_, _ = theirIn.Close(), ourIn.Close()
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	p.in, p.out = ourIn, ourOut
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirIn, theirOut, &p.stderr
	p.cmd.WaitDelay = time.Second // what it has started may keep its standard error open
	started := make(chan error, 1)
	go p.run(started)
	err = <-started
	_, _ = theirIn.Close(), theirOut.Close()
	if err != nil {
		_, _ = ourIn.Close(), ourOut.Close()
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	p.lines = NewLineReader(p.out, cfg.MaxLine)
	go p.write()
	return p, nil
}

// run starts the process and waits for its end, on one thread of the system: Linux ends the process when the thread that
// started it ends.
func (p *Process) run(started chan<- error) {
	unlock := p.prepare()
	defer unlock()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	if err := p.adopt(); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		started <- err
		return
	}
	started <- nil
	err := p.cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well, and left something that holds its standard error
	}
	p.exitErr = err
	close(p.exited)
}

// Identity returns what the process is known by.
func (p *Process) Identity() Identity { return p.id }

// Exited returns a channel that is closed when the process has ended; what it has started may still run.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitErr returns nil if the process, which must have ended, has succeeded, and else how it ended.
func (p *Process) ExitErr() error {
	<-p.exited
	return p.exitErr
}

// ExitText says how the process ended, for people; it must have ended.
func (p *Process) ExitText() string {
	if err := p.ExitErr(); err != nil {
		return err.Error()
	}
	return "exit status 0"
}

// Stderr returns the end of what the process printed to standard error.
func (p *Process) Stderr() string { return p.stderr.String() }

// ReadLine returns the next line, as LineReader.ReadLine. The error is ErrLongLine, or final: io.EOF, or another after End.
func (p *Process) ReadLine() ([]byte, error) {
	line, err := p.lines.ReadLine()
	if err != nil && err != ErrLongLine {
		_ = p.out.Close()
	}
	return line, err
}

// Send queues a line, which gets a line feed, and does not wait. The error is that of an earlier line, or ErrStuck. done,
// if it is not nil, is called once, from another goroutine, when the line is written or cannot be; not if Send fails.
func (p *Process) Send(text []byte, done func(error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.sendErr != nil:
		return p.sendErr
	case p.closing:
		return os.ErrClosed
	case len(p.queue) >= queuedLines || p.queued > 0 && p.queued+len(text) > queuedBytes:
		return ErrStuck
	}
	p.queue = append(p.queue, line{append(text[:len(text):len(text)], '\n'), done})
	p.queued += len(text) + 1
	p.signal()
	return nil
}

func (p *Process) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// write writes the queued lines, until the queue is closed and empty, or a line could not be written.
func (p *Process) write() {
	defer close(p.writes)
	defer p.in.Close()
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			closing := p.closing
			p.mu.Unlock()
			if closing {
				return
			}
			<-p.wake
			continue
		}
		l, err := p.queue[0], p.sendErr
		p.queue, p.queued = p.queue[1:], p.queued-len(p.queue[0].text)
		p.mu.Unlock()
		if err == nil {
			err = p.in.SetWriteDeadline(time.Now().Add(p.cfg.WriteWait))
			if errors.Is(err, os.ErrNoDeadline) {
				err = nil // End closes it
			}
		}
		if err == nil {
			_, err = p.in.Write(l.text)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ErrStuck
		}
		if err != nil {
			p.mu.Lock()
			p.sendErr, p.closing = err, true
			p.mu.Unlock()
		}
		if l.done != nil {
			l.done(err)
		}
	}
}

// End ends the process and all that it has started: it closes its standard input, and gives it time to end by itself;
// then it gets SIGTERM, then SIGKILL. When it returns nil nothing of it runs any more, and ReadLine soon returns its last
// error; until then somebody has to go on reading, or a process that prints cannot end by itself. End may be called
// again, and gives the same answer. A context that ends leaves out the waiting, not the end.
func (p *Process) End(ctx context.Context) error {
	p.endOnce.Do(func() { p.endErr = p.end(ctx) })
	return p.endErr
}

func (p *Process) end(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.signal()
	if !p.wait(ctx) {
		p.terminate()
		p.wait(ctx)
	}
	err := p.kill(killWait)
	_, _ = p.in.SetWriteDeadline(time.Now()), p.in.Close()
	if p.out.SetReadDeadline(time.Now().Add(time.Second)) != nil {
		_ = p.out.Close() // pipes have no deadlines here
	}
	<-p.writes
	if err == nil {
		<-p.exited
	}
	return err
}

// wait waits for the end of the leader, for the time that it is given.
func (p *Process) wait(ctx context.Context) bool {
	timer := time.NewTimer(p.cfg.Grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	max  int
	text []byte
	cut  bool
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if len(b) > t.max {
		b, t.cut = b[len(b)-t.max:], true
	}
	if more := len(t.text) + len(b) - t.max; more > 0 {
		t.text, t.cut = append(t.text[:0], t.text[more:]...), true
	}
	t.text = append(t.text, b...)
	return n, nil
}

// String returns what is kept as valid UTF-8, without a beginning that is cut off within a line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.text
	if _, after, ok := bytes.Cut(text, []byte("\n")); t.cut && ok && len(after) > 0 {
		text = after
	}
	return string(bytes.ToValidUTF8(text, []byte("\uFFFD")))
}
