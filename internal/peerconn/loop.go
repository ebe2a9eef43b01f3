// Loop: the goroutines, timers and queues of one connection, and how they begin and end.

package peerconn

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/lazytimer"
)

// Codec is the core of a connection, as its Loop sees it. Its methods are called with the owner's lock held, except where
// they say otherwise; those that may release it meanwhile say that.
type Codec interface {
	// Read waits for received bytes, which are valid until the next Read. The lock is not held.
	Read() ([]byte, error)
	// Write sends the messages in batch; ends says where each ends. There may be none: then it sends what an earlier attempt to
	// write has left. The lock is not held.
	Write(batch []byte, ends []int) error
	// Receive handles what was read. It may release the lock.
	Receive(batch []byte, r *Reading)
	// UnlockAndRun calls Loop.Unlock, and then carries out what the core has left to be done when the lock is free.
	UnlockAndRun()
	// Wrote is called when output was written, which makes room.
	Wrote()
	// InFlight returns how many calls of either side are unanswered.
	InFlight() int
	// IsUnused reports whether neither side waits for anything, or references anything but the other's first object.
	IsUnused() bool
	// TransportEnding returns how a connection ends whose transport failed. It may call code of the program. The lock is not held.
	TransportEnding(err error) Ending
	// Disconnected returns the error of a connection that the loop ends. The lock need not be held.
	Disconnected(why error) error
	// SendAbort queues the message that tells the peer why the connection ends.
	SendAbort(why error)
	// Break is called once, when the connection ends: it breaks all promises and empties the tables. why is nil after an orderly
	// end.
	Break(why error)
	// Finish is called when no goroutine of the connection runs any more. It fails the calls that no handler has answered, and
	// reports whether nothing was left to do. It may release the lock.
	Finish() (done bool)
	// LogText returns an error as the log has it. The lock is not held.
	LogText(err error) string
}

// Transport is what a Loop needs of a transport besides Codec.Read and Codec.Write.
type Transport interface {
	Ping(ctx context.Context) error
	Close(code int, reason string) error
	RemoteAddr() string
}

// Timeouts are the bounds in time of a connection.
type Timeouts struct {
	Write, PingInterval, Ping, Close time.Duration
	Handshake, Idle                  time.Duration // 0 never
}

// Config configures a Loop.
type Config struct {
	Lock      *sync.Mutex // the owner's, which guards the Loop, its Output and the core
	Output    *Output
	Transport Transport
	Timeouts  Timeouts
	Log       *slog.Logger // nil discards
	Hits      *LimitHits   // nil: not counted
	Intake    *intake.Peer
	// RelieveDelivery makes another reader take over when a delivery takes long. It is for a codec whose reader delivers
	// the calls of one message at a time; a batch of many messages takes long though no handler does.
	RelieveDelivery bool
	Freed           func([]byte) // for tests: gets written bytes, whose memory others would use next; nil: they do
}

// Loop runs one connection. Methods are called with the owner's lock held, except where they say otherwise.
type Loop struct {
	mu           *sync.Mutex
	out          *Output
	codec        Codec
	cfg          Config
	log          *slog.Logger
	hits         *LimitHits
	done         chan struct{} // closed when ended is set
	start        time.Time
	lastActivity atomic.Int64 // when the peer last showed a sign of life, nanoseconds since start
	lastMessage  atomic.Int64 // when its last message came
	arrival      atomic.Int64 // when what was written will have arrived, at minWriteRate

	ended        bool
	ending       Ending
	closing      bool // the transport is to be closed when the lock is free,
	closeWaits   bool // once pending output is sent
	running      bool // Run was called
	finished     bool // Run is about to return: nothing is posted any more
	workers      int  // goroutines that Run waits for
	workersDone  sync.Cond
	delivering   bool // a goroutine is delivering tasks
	readerBusy   bool // it is the reader, and nobody reads meanwhile
	readerGen    int  // number of the present reader
	readerPaused bool // the reader waits, or handles a message without the lock: it reads no answer to a ping
	spareTasks   []Task
	writeState

	// Manual leaves delivery to Deliver, in tests of the owners.
	Manual bool
}

// Init sets the Loop up; nothing runs until Run.
func (l *Loop) Init(codec Codec, cfg Config) {
	l.mu, l.out, l.codec, l.cfg, l.log, l.hits = cfg.Lock, cfg.Output, codec, cfg, cfg.Log, cfg.Hits
	l.done, l.start = make(chan struct{}), time.Now()
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.hits == nil {
		l.hits = new(LimitHits)
	}
	l.workersDone.L = l.mu
	l.initWriteState()
	l.initTransport()
}

// Done returns a channel that is closed when the connection has ended. The lock need not be held.
func (l *Loop) Done() <-chan struct{} { return l.done }

// Ending returns how the connection has ended; the zero Ending before.
func (l *Loop) Ending() Ending { return l.ending }

// Log returns the connection's logger. The lock need not be held.
func (l *Loop) Log() *slog.Logger { return l.log }

// CountHit counts that a limit was reached. The lock need not be held.
func (l *Loop) CountHit(limit Limit) { l.hits.Add(limit) }

// Run reads and serves until the connection ends and all its goroutines have, and returns why it ended: ctx's error if that
// ended first. The lock is not held. Call it once.
func (l *Loop) Run(ctx context.Context) error {
	if stop := l.begin(ctx); stop != nil {
		defer stop()
		l.read(0)
	}
	return l.awaitEnd()
}

// begin starts what watches the connection, and returns what stops that; nil if it has ended already. The lock is not held.
func (l *Loop) begin(ctx context.Context) (stop func()) {
	l.mu.Lock()
	if l.running {
		l.mu.Unlock()
		panic("Conn.Run called twice")
	}
	l.running = true
	if l.ended {
		l.mu.Unlock()
		return nil
	}
	l.workers++
	l.codec.UnlockAndRun()
	l.restartSilence()
	stopCtx := context.AfterFunc(ctx, func() {
		l.End(Ending{Err: ctx.Err(), Code: CloseGoingAway, Reason: "going away", Flush: true})
	})
	watch := l.startKeepalive()
	return func() {
		stopCtx()
		watch.Stop()
	}
}

// awaitEnd returns, when all goroutines have ended, why the connection has. The lock is not held.
func (l *Loop) awaitEnd() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.finished {
		for l.workers > 0 {
			l.workersDone.Wait()
		}
		l.finished = l.codec.Finish() && l.workers == 0 && len(l.out.Tasks) == 0
		if !l.finished {
			l.codec.UnlockAndRun() // starts delivery
			l.mu.Lock()
		}
	}
	l.out.TakeMessages()
	l.spareTasks = nil
	l.stallTimer.Stop()
	l.holdTimer.Stop()
	l.flushTimer.Stop()
	return l.ending.Err
}

// Spawn runs f in a goroutine that Run waits for; false once the connection has ended. The lock is not held.
func (l *Loop) Spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.workers++
	go func() {
		defer l.WorkerDone()
		f()
	}()
	return true
}

// WorkerDone records that a goroutine that Run waits for has ended, or that the work is done for which Unlock
// was called with more set. The lock is not held.
func (l *Loop) WorkerDone() {
	l.mu.Lock()
	l.workerDone()
	l.mu.Unlock()
}

func (l *Loop) workerDone() {
	l.workers--
	if l.workers == 0 {
		l.workersDone.Broadcast()
	}
}

// Unlock releases the lock, and has pending output written and tasks delivered. With more set, Run waits for a call of
// WorkerDone before it returns: the caller has more to do.
func (l *Loop) Unlock(more bool) {
	wake, atOnce := l.scheduleWrite()
	deliver := len(l.out.Tasks) > 0 && !l.delivering && !l.Manual && (l.running || l.ended)
	if deliver {
		l.delivering = true
		l.workers++
	}
	if more {
		l.workers++
	}
	closing := l.closing
	l.closing = false
	l.mu.Unlock()
	if wake {
		l.wakeWriter()
	}
	if atOnce != nil {
		l.tryWrite(atOnce)
	}
	if deliver {
		go func() {
			defer l.WorkerDone()
			l.deliver(nil, false)
		}()
	}
	if closing {
		l.closeTransport()
	}
}

// WaitForRoom releases the lock until there may be room at a limit, or ctx ends. If the reader is busy delivering, another
// takes over reading, so that the peer's answers, which make room, are read even when a handler waits here.
func (l *Loop) WaitForRoom(ctx context.Context) error {
	room := l.out.waitRoom()
	l.replaceReader()
	l.codec.UnlockAndRun()
	defer l.mu.Lock()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drain waits until unanswered returns 0, or ctx ends, and ends the connection with the reason; queued output is then sent. The
// error is ctx's.
func (l *Loop) Drain(ctx context.Context, reason string, unanswered func() int) error {
	var err error
	for err == nil && unanswered() > 0 && !l.ended {
		err = l.WaitForRoom(ctx)
	}
	l.EndLocked(Ending{Code: CloseGoingAway, Reason: reason, Flush: true})
	return err
}

// lockUnlessFinished takes the lock for a timer, and reports whether the connection has not ended.
func (l *Loop) lockUnlessFinished() bool {
	l.mu.Lock()
	return !l.finished
}

func (l *Loop) timer(t *lazytimer.Timer, fire func()) {
	t.Init(l.lockUnlessFinished, l.codec.UnlockAndRun, fire)
}
