package attach

// The loop: one goroutine has all the state, and takes one event at a time.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode/mirror"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

// Config is what is tied.
type Config struct {
	Client   *client.Client
	Session  *client.Session
	Tie      *Tie
	Opencode *opencodeapi.API  // after Choose
	Report   func(line string) // what people should know
}

const (
	worker     = "mooring-attach" // of claims
	claimLease = time.Hour        // the longest there is
	renewEvery = 20 * time.Minute // the claim of a prompt that is being worked on
	lookEvery  = 2 * time.Second  // at what opencode does with a prompt,
	lookBusy   = 10 * time.Second // and while it works: it says when it rests
	calm       = 500 * time.Millisecond
	retryFirst = time.Second // after which what opencode has not answered is asked again
	retryLast  = 30 * time.Second
)

// attachment is the state.
type attachment struct {
	cfg    Config
	id     string // opencode's session
	api    *opencodeapi.API
	ctx    context.Context // ends when it is to end
	work   context.Context // of commits at its end, too
	rec    *recorder
	stream *stream
	posts  chan func() error
	closed chan struct{} // when the loop has ended

	open   bool          // the stream is
	away   bool          // it was said that opencode is
	behind bool          // opencode is to be compared with the session
	said   string        // the last failure that people were told
	retry  time.Duration // after the next failure
	tryAt  time.Time     // when to compare
	idleAt time.Time     // when to compare the newest messages: a turn has ended; zero: no need

	tickets chan client.Ticket // the newest of what was recorded
	tasks   sync.WaitGroup

	prompts
	asks
}

// Run ties the two until ctx ends, which is no error, or until that makes no sense any more: opencode's session was deleted, or Mooring's
// takes nothing under the ref.
func Run(ctx context.Context, cfg Config) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &attachment{cfg: cfg, id: cfg.Tie.rec.Opencode, api: cfg.Opencode, ctx: ctx, work: context.WithoutCancel(ctx), posts: make(chan func() error), closed: make(chan struct{}),
		tickets: make(chan client.Ticket, 1), prompts: newPrompts(cfg.Tie.rec.Prompt), asks: newAsks()}
	m := mirror.New(cfg.Session, cfg.Tie.KeysName(), a.record)
	if err := m.Load(); err != nil {
		return err
	}
	a.rec, a.stream = newRecorder(a.id, m), newStream(a.api)
	a.tasks.Go(func() { a.stream.run(ctx) })
	a.tasks.Go(a.follow)
	a.tasks.Go(a.watch)
	defer func() {
		cancel()
		close(a.closed)
		a.tasks.Wait()
	}()
	for err == nil {
		err = a.step()
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	return errors.Join(err, a.rec.flush(a.work, time.Now().Add(retryLast)), a.giveBack())
}

// post has the loop call f, and waits until it takes it.
func (a *attachment) post(f func() error) {
	select {
	case a.posts <- f:
	case <-a.closed:
	}
}

// step takes one event.
func (a *attachment) step() error {
	timer := time.NewTimer(max(time.Until(a.due()), 0))
	defer timer.Stop()
	select {
	case <-a.ctx.Done():
		return a.ctx.Err()
	case f := <-a.posts:
		return f()
	case <-a.stream.ready:
		for _, e := range a.stream.take() {
			if err := a.heard(e); err != nil {
				return err
			}
		}
		return nil
	case <-timer.C:
		return a.tick(time.Now())
	}
}

// due returns when tick is to be called.
func (a *attachment) due() time.Time {
	by := time.Now().Add(time.Hour)
	times := []time.Time{a.rec.due()}
	switch {
	case a.open && a.behind:
		times = append(times, a.tryAt)
	case a.open:
		times = append(times, a.idleAt, a.lookAt)
	}
	if a.current != nil && a.current.Claim != 0 {
		times = append(times, a.renewed.Add(renewEvery))
	}
	for _, t := range times {
		if !t.IsZero() && t.Before(by) {
			by = t
		}
	}
	return by
}

// tick does what is due.
func (a *attachment) tick(now time.Time) error {
	isDue := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	var err error
	if isDue(a.rec.due()) {
		err = a.ask("record what opencode did", func() error { return a.rec.flush(a.ctx, now) })
	}
	if err == nil && a.open && a.behind && isDue(a.tryAt) {
		err = a.ask("compare the session", a.catchUp)
	}
	if err == nil && a.open && !a.behind && isDue(a.idleAt) {
		a.idleAt = time.Time{}
		err = a.ask("compare the session", func() error { return a.rec.compareRecent(a.ctx, a.api) })
	}
	if err == nil && a.open && !a.behind && isDue(a.lookAt) {
		a.lookAt = time.Time{}
		err = a.ask("look at the prompt", a.attend)
	}
	if err == nil && a.current != nil && a.current.Claim != 0 && now.After(a.renewed.Add(renewEvery)) {
		a.renewed = now
		b := a.cfg.Session.Batch()
		b.ClaimRequest(a.current.Request, claimLease, worker)
		_, err = a.commit(a.ctx, b)
	}
	return err
}

// ask does something for which opencode has to answer, and the disk to have room. If that fails, all is compared once it does not.
func (a *attachment) ask(what string, f func() error) error {
	err := f()
	switch {
	case err == nil || a.ctx.Err() != nil:
		return a.ctx.Err()
	case opencodeapi.IsStatus(err, http.StatusNotFound):
		return fault.NotFound.Because(err, "opencode has no session %s any more: what was recorded of it stays", a.id)
	case errors.Is(err, opencodeapi.ErrAway), errors.As(err, new(*opencodeapi.StatusError)), fault.CodeOf(err) == fault.DiskFull:
		a.fallBehind()
		if said := err.Error(); !errors.Is(err, opencodeapi.ErrAway) && said != a.said {
			a.said = said
			a.cfg.Report(fmt.Sprintf("could not %s; it is tried again: %v", what, err))
		}
		return nil
	}
	return err
}

// fallBehind notes that opencode is to be compared again, a while from now.
func (a *attachment) fallBehind() {
	a.retry = min(max(2*a.retry, retryFirst), retryLast)
	a.behind, a.tryAt = true, time.Now().Add(a.retry)
}

// catchUp reads all that matters from opencode.
func (a *attachment) catchUp() error {
	busy, err := a.api.Busy(a.ctx)
	if err != nil {
		return err
	}
	if err := a.rec.compare(a.ctx, a.api, busy[a.id]); err != nil {
		return err
	}
	if err := a.listAsks(busy); err != nil {
		return err
	}
	a.behind, a.tryAt, a.retry = false, time.Time{}, 0
	if a.idleAt = time.Now().Add(calm); busy[a.id] {
		a.idleAt = time.Time{}
	}
	a.lookAt = time.Now()
	return nil
}

// heard takes an event of opencode's.
func (a *attachment) heard(e event) error {
	switch e.Type {
	case streamOpen:
		if a.away {
			a.cfg.Report("opencode is back")
		}
		a.open, a.away, a.behind, a.tryAt = true, false, true, time.Now()
		clear(a.rec.growing) // what was said since is not known
		a.restarted()
		return nil
	case streamEnded:
		a.open = false
		if !a.away && !errors.Is(e.err, errBehind) {
			a.away = true
			a.cfg.Report(fmt.Sprintf("opencode is away: %v; it is waited for", e.err))
		}
		return nil
	}
	var of struct {
		Session string `json:"sessionID"`
		Info    struct {
			ID      string `json:"id"`
			Session string `json:"sessionID"`
		} `json:"info"`
		Part struct {
			Session string `json:"sessionID"`
		} `json:"part"`
	}
	_ = json.Unmarshal(e.Properties, &of) // what cannot be read is of no session
	if of.Session == "" {
		of.Session = of.Info.Session + of.Part.Session
	}
	switch {
	case (e.Type == permissionAsked || e.Type == questionAsked) && a.behind: // it is read with all else
		return nil
	case e.Type == permissionAsked || e.Type == questionAsked:
		return a.ask("ask what opencode asks", func() error { return a.asked(e.Properties) })
	case e.Type == permissionReplied || e.Type == questionReplied || e.Type == questionRejected:
		return a.replied(e)
	case e.Type == "session.idle":
		if err := a.turnEnded(of.Session); err != nil {
			return err
		}
	case of.Session == "" && of.Info.ID == a.id: // a session's, of older versions
		of.Session = a.id
	}
	if of.Session != a.id {
		return nil
	}
	switch e.Type {
	case "session.deleted":
		return fault.NotFound.With("opencode's session %s was deleted: what was recorded of it stays", a.id)
	case "session.idle":
		a.idleAt, a.lookAt = time.Now().Add(calm), time.Now()
	case "session.error":
		a.failedWith(e.Properties)
	case "message.updated":
		a.seen(of.Info.ID)
	}
	a.rec.hear(e, time.Now())
	return nil
}
