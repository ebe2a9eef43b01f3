package acprun

// The runner: its state, its loop, and how ops are committed.

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/acprecord"
	"github.com/mooring-rpc/mooring/internal/agentproc"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Config is what is run, and for which session.
type Config struct {
	Session *client.Session
	Client  *client.Client
	Journal string   // the file; one for each session
	Command []string // the agent's program and its arguments
	Dir     string   // where it works: an absolute path
	Version string   // of this program

	Editor     Editor          // before which a person sits; nil: there is none
	Initialize json.RawMessage // what the agent's client says of itself; nil: that it is Mooring, and can nothing
	Open       json.RawMessage // with what else the agent's session is opened; nil: nothing
	History    bool            // the editor wants the agent to repeat what was before, where it can
	Started    *Started        // the agent's process; nil: it is to be started. Run ends it

	PermissionTimeout time.Duration // after which a permission is refused; 0: never
	Report            func(line string)

	StartWait time.Duration // for the agent's answers before it is ready; default 2 min
	StopWait  time.Duration // for a turn to end after it was cancelled; default 20 s
	Grace     time.Duration // agentproc.Config.Grace
}

const (
	worker     = "mooring-run"    // of claims
	claimLease = time.Hour        // the longest there is
	renewEvery = 20 * time.Minute // the claim of a prompt that is being worked on
	quietEvery = 10 * time.Second // an op keeps the turn from being shown as interrupted
	batchOps   = 500
	batchBytes = 4 << 20
)

// runner is the state of a run. Its goroutine is that of Run.
type runner struct {
	cfg     Config
	ctx     context.Context // of the run; ends when it is to end
	work    context.Context // of what is done at its end, too
	journal *journal
	rec     *acprecord.Recorder
	events  chan func() error
	over    chan struct{} // closed when the loop has ended: no event is taken any more

	agent     *agent
	everReady bool
	refused   *acp.Error // what the agent answered to the opening of its session, last
	misspoke  bool       // the agent was ended because of what it said: that is not of the protocol
	leftOver  []*prompt  // of an earlier run, handed or about to be
	current   *prompt
	payload   []byte // of current, if it is not handed yet
	queue     []*client.Request
	done      map[string]bool // requests that have ended in this run
	stopping  time.Time       // when the turn was asked to stop; zero: it was not
	renewed   time.Time       // the claim of current
	committed time.Time       // the newest ops
	asker     string          // actor of current, if it is not handed yet
	fence     fence

	own       map[string]*ownPrompt // of the editor, by request
	wasOpened bool                  // the editor was told that the agent's session is open
	held      bool                  // it is not shown that yet: no prompt is begun
}

// Run runs an agent until ctx ends, which is no error, or until that makes no sense any more: the agent cannot be started,
// or the session's ref is dead. What the agent was doing is then ended, and nothing of it is left.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.setDefaults()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner{cfg: cfg, ctx: ctx, work: context.WithoutCancel(ctx), events: make(chan func() error), over: make(chan struct{}), done: map[string]bool{}, own: map[string]*ownPrompt{}}
	defer func() {
		if s := r.cfg.Started; s != nil { // it was not taken over
			err = errors.Join(err, s.End())
		}
	}()
	if r.journal, err = openJournal(cfg.Journal); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.journal.close()) }()
	for mark, id := range r.journal.agents {
		if err := agentproc.EndLeft(*id, 3*time.Second); err != nil {
			return fault.InUse.Because(err, "an earlier run's agent may still work in this session: %v", err)
		}
		if err := r.journal.write(record{Ended: mark}); err != nil {
			return err
		}
	}
	r.rec = acprecord.New(acprecord.Config{Session: cfg.Session.ID(), Dir: cfg.Dir, Run: ulid.Make().String()}, r.journal.begun)
	for _, p := range r.journal.prompts {
		if p.Stage != Claiming && p.Stage != Taken {
			r.leftOver = append(r.leftOver, p)
		}
	}
	if err := r.takeFence(); err != nil {
		return err
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		r.follow()
	}()
	defer func() {
		cancel()
		close(r.over)
		<-followed
	}()
	err = r.startAgent()
	for err == nil {
		err = r.step()
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, r.shutdown(), r.releaseFence())
}

func (cfg *Config) setDefaults() {
	defaults.Set(&cfg.StartWait, 2*time.Minute)
	defaults.Set(&cfg.StopWait, 20*time.Second)
	if cfg.Report == nil {
		cfg.Report = func(string) {}
	}
}

// post has the loop call f, and waits until it takes it.
func (r *runner) post(f func() error) {
	select {
	case r.events <- f:
	case <-r.over:
	}
}

// step takes one event.
func (r *runner) step() error {
	timer := time.NewTimer(max(time.Until(r.due()), 0))
	defer timer.Stop()
	var err error
	select {
	case f := <-r.events:
		err = f()
	case <-timer.C:
		err = r.tick(time.Now())
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	if a := r.agent; err == nil && a != nil && a.broken != nil {
		err = r.failAgent(a.broken.Error())
	}
	return err
}

// due returns when tick is to be called.
func (r *runner) due() time.Time {
	by := time.Now().Add(time.Hour)
	soonest := func(t time.Time) {
		if !t.IsZero() && t.Before(by) {
			by = t
		}
	}
	soonest(r.rec.Due())
	if r.agent != nil {
		soonest(r.agent.deadline)
	}
	soonest(r.stopBy())
	soonest(r.noticeBy())
	if r.fence.claim != nil {
		soonest(r.fence.asked.Add(fenceEvery))
	}
	if r.rec.Turn() != "" {
		soonest(r.committed.Add(quietEvery))
	}
	if r.current != nil && r.current.Claim != 0 {
		soonest(r.renewed.Add(renewEvery))
	}
	return by
}

// stopBy returns when a turn that was asked to stop has to have ended; zero if there is none.
func (r *runner) stopBy() time.Time {
	if r.stopping.IsZero() || r.current == nil || r.current.Stage == Claiming || r.current.Stage == Taken {
		return time.Time{}
	}
	return r.stopping.Add(r.cfg.StopWait)
}

// tick does what is due.
func (r *runner) tick(now time.Time) error {
	if err := r.commit(r.rec.Flush(now)); err != nil {
		return err
	}
	switch a := r.agent; {
	case a != nil && !a.deadline.IsZero() && now.After(a.deadline):
		return r.failAgent("the agent did not answer " + a.waitsFor() + " within " + r.cfg.StartWait.String() + a.saidRubbish())
	case !r.stopBy().IsZero() && now.After(r.stopBy()):
		return r.failAgent("the agent was asked to stop and did not within " + r.cfg.StopWait.String() + ", so it was ended")
	case r.rec.Turn() != "" && now.After(r.committed.Add(quietEvery)):
		if err := r.commit(r.rec.SetState(func(*acprecord.State) {})); err != nil { // changes nothing, and says that the turn lives
			return err
		}
	}
	r.noticeWaiting(now)
	if r.fence.claim != nil && now.After(r.fence.asked.Add(fenceEvery)) {
		if err := r.renewFence(false); err != nil {
			return err
		}
	}
	if r.current != nil && r.current.Claim != 0 && now.After(r.renewed.Add(renewEvery)) {
		r.renewed = now
		b := r.cfg.Session.Batch()
		b.ClaimRequest(r.current.Request, claimLease, worker)
		return r.commitBatch(b)
	}
	return nil
}

// commit commits the recorder's ops, in batches.
func (r *runner) commit(ops []acprecord.Op) error {
	b, size, state := r.cfg.Session.Batch(), 0, false
	for _, o := range ops {
		n := len(o.Payload) + len(o.Text)
		if b.Len() > 0 && (b.Len() >= batchOps || size+n > batchBytes) {
			if err := r.commitBatch(b); err != nil {
				return err
			}
			b, size = r.cfg.Session.Batch(), 0
		}
		addOp(b, o, r.fence.claim)
		size += n
		state = o.Key == acprecord.StateKey
	}
	if !state { // which is last
		return r.commitBatch(b)
	}
	ticket, err := r.commitTicket(b)
	if err == nil {
		r.watchFence(ticket)
	}
	return err
}

// addOp adds an op of the recorder to a batch. The agent's state is put under the claim, if there is one.
func addOp(b *client.Batch, o acprecord.Op, claim any) {
	switch o.Method {
	case session.MethodPut:
		p := b.Put(o.Key, o.Payload)
		if o.New {
			p.ExpectKey(0)
		}
		if o.Key == acprecord.StateKey && claim != nil {
			p.WithClaim(claim)
		}
	case session.MethodBegin:
		b.Begin(o.Message, o.Payload)
	case session.MethodAppendText:
		b.AppendText(o.Key, o.Offset, o.Text)
	case session.MethodFinalize:
		p := b.Finalize(o.Message, o.Status)
		if o.Payload != nil {
			p.Arg("payload", o.Payload)
		}
		if o.Error != nil {
			p.Arg("error", o.Error)
		}
	}
}

// commitBatch makes a batch durable. While the outbox has no room, it waits, and so does the agent.
func (r *runner) commitBatch(b *client.Batch) error {
	_, err := r.commitTicket(b)
	return err
}

func (r *runner) commitTicket(b *client.Batch) (ticket client.Ticket, err error) {
	if b.Len() == 0 {
		return ticket, nil
	}
	r.committed = time.Now()
	for reported := false; ; {
		ticket, err = b.Commit(r.work)
		switch code := fault.CodeOf(err); {
		case code == fault.AlreadyExists: // an earlier run has committed another under this id
			return ticket, nil
		case code != fault.OutboxFull && code != fault.Unavailable && code != fault.DiskFull:
			return ticket, err
		}
		if !reported {
			reported = true
			r.cfg.Report("waiting: " + err.Error())
		}
		select {
		case <-time.After(time.Second):
		case <-r.ctx.Done():
			return ticket, err
		}
	}
}

// shutdown ends the turn and the agent.
func (r *runner) shutdown() error {
	var err error
	if p := r.current; p != nil && r.agent != nil && (p.Stage == Handing || p.Stage == Handed || p.Stage == Heard) {
		err = r.cancelTurn()
		end := time.NewTimer(min(r.cfg.StopWait, 5*time.Second))
		defer end.Stop()
		for waiting := true; waiting && r.current == p && r.agent != nil && err == nil; {
			select {
			case f := <-r.events:
				err = f()
			case <-end.C:
				waiting = false
			}
		}
	}
	r.queue = nil
	err = errors.Join(err, r.withdrawOwn(errGone))
	if r.agent != nil {
		why := "mooring run was ended"
		if cause := context.Cause(r.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			why = cause.Error()
		}
		err = errors.Join(err, r.endAgent(), r.agentGone(why, "ended"))
	}
	return err
}
