package acpedit

// The server: what the editor says before its sessions, and beside them.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/acprun"
	"github.com/mooring-rpc/mooring/internal/agentproc"
)

// Config is what an editor is served with.
type Config struct {
	In  io.Reader
	Out io.Writer

	// Run is of each session, but for what a session has for itself. Its Dir is where the first process starts.
	Run acprun.Config

	// New returns the session of a session/new, and Open that of an id. They are called one at a time.
	New  func(ctx context.Context) (Session, error)
	Open func(ctx context.Context, id string) (Session, error)
}

// Session is a session of Mooring for one of the editor.
type Session struct {
	*client.Session
	Journal string // acprun.Config.Journal
	Before  bool   // there may be something in it, which the editor is to be shown
}

// Bounds that no configuration changes.
const (
	maxLine     = 16 << 20
	maxRubbish  = 1000
	maxSessions = 16
	maxInbox    = 64
	maxHistory  = 16 << 20
)

// server is the connection with its sessions.
type server struct {
	cfg  Config
	ctx  context.Context // ends when all is to end
	conn *conn

	inbox   chan acp.Message     // of no session
	spare   chan *acprun.Started // has room for one: a process without a session
	opening chan struct{}        // has room for one: Config.New or Open is at work
	unused  chan Session         // has room for one: a new session that the agent did not open
	work    sync.WaitGroup

	mu       sync.Mutex
	over     bool            // nothing more is begun
	client   json.RawMessage // the editor's params of initialize, as the agent gets them; nil before that is answered
	offers   offers
	sessions map[string]*editSession // by id
	count    int                     // of sessions, with those that have no id yet
}

// Serve speaks with an editor until that closes its side, or ctx ends; neither is an error. All that the agents were doing is
// then ended.
func Serve(ctx context.Context, cfg Config) error {
	all, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)
	defer context.AfterFunc(ctx, func() { fail(errStopped) })()
	s := &server{cfg: cfg, ctx: all, conn: newConn(cfg.Out, fail), sessions: map[string]*editSession{},
		inbox: make(chan acp.Message, maxInbox), spare: make(chan *acprun.Started, 1), opening: make(chan struct{}, 1), unused: make(chan Session, 1)}
	s.work.Go(s.serveUnbound)
	go func() { fail(s.read()) }() // it ends with the editor's side, or with the process
	<-all.Done()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.work.Wait()
	s.conn.close()
	err := context.Cause(all)
	select {
	case started := <-s.spare:
		err = errors.Join(err, started.End())
	default:
	}
	if errors.Is(err, errClosed) || errors.Is(err, errStopped) || errors.Is(err, errGone) {
		return nil
	}
	return err
}

// Why all ends, where that is no error.
var (
	errClosed  = errors.New("the editor has closed the connection")
	errGone    = errors.New("the editor has gone")
	errStopped = errors.New("mooring acp was ended")
)

// read takes the editor's lines until there are no more, and returns why.
func (s *server) read() error {
	lines, rubbish := agentproc.NewLineReader(s.cfg.In, maxLine), 0
	for s.ctx.Err() == nil {
		line, err := lines.ReadLine()
		switch {
		case errors.Is(err, io.EOF):
			return errClosed
		case err != nil && err != agentproc.ErrLongLine:
			return fmt.Errorf("%w: %w", errGone, err)
		}
		var m acp.Message
		if err == nil {
			m, err = acp.Decode(line)
		}
		if err == nil {
			s.take(m)
			continue
		}
		if rubbish++; rubbish > maxRubbish {
			return fmt.Errorf("the editor sends what is not of the protocol: %w", err)
		}
		s.conn.send(acp.Refusal(json.RawMessage("null"), acp.CodeParse, err.Error()))
	}
	return nil
}

// take takes a message of the editor.
func (s *server) take(m acp.Message) {
	if m.Kind == acp.Response {
		if answer := s.conn.answered(m.Call); answer != nil {
			answer(m)
		}
		return
	}
	if m.Kind == acp.Notification && m.Method == acp.MethodCancelCall {
		s.cancelCall(m)
		return
	}
	if m.Kind == acp.Request && m.Method != acp.MethodInitialize && !s.begun() {
		s.refuse(m, acp.CodeInvalidRequest, "initialize has to be answered first")
		return
	}
	switch m.Method {
	case acp.MethodNew, acp.MethodLoad, acp.MethodResume:
		s.open(m)
		return
	case acp.MethodFork, acp.MethodList:
		s.refuse(m, acp.CodeMethodNotFound, m.Method+": the agent's own sessions are none of the editor's")
		return
	}
	id := acp.SessionOf(m.Params)
	if id == "" || m.Method == acp.MethodInitialize {
		select {
		case s.inbox <- m:
		case <-s.ctx.Done():
		}
		return
	}
	s.mu.Lock()
	e := s.sessions[id]
	s.mu.Unlock()
	if e == nil {
		s.refuse(m, acp.CodeNotFound, "there is no session "+id+" here that is open: session/load opens one")
		return
	}
	e.take(m)
}

// refuse answers a request, if it is one, with an error.
func (s *server) refuse(m acp.Message, code int, why string) {
	if m.Kind == acp.Request {
		s.conn.send(acp.Refusal(m.ID, code, why))
	}
}

func (s *server) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

// cancelCall ends a prompt whose answer the editor does not want any more.
func (s *server) cancelCall(m acp.Message) {
	p, err := acp.Read[acp.CancelCallParams](m.Params)
	if err != nil {
		return
	}
	s.mu.Lock()
	sessions := make([]*editSession, 0, len(s.sessions))
	for _, e := range s.sessions {
		sessions = append(sessions, e)
	}
	s.mu.Unlock()
	for _, e := range sessions {
		if e.works(p.ID) {
			e.take(acp.Message{Kind: acp.Notification, Method: acp.MethodCancel})
		}
	}
}

// serveUnbound takes the messages that are of no session, one at a time: they are for a process that has none.
func (s *server) serveUnbound() {
	for {
		select {
		case m := <-s.inbox:
			switch {
			case m.Kind != acp.Request:
			case m.Method == acp.MethodInitialize:
				s.initialize(m)
			case strings.HasPrefix(m.Method, "session/"):
				s.refuse(m, acp.CodeInvalidParams, m.Method+" names no session")
			default:
				s.pass(m)
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// offers is what the editor answers.
type offers struct {
	FS struct {
		Read  bool `json:"readTextFile"`
		Write bool `json:"writeTextFile"`
	} `json:"fs"`
	Terminal bool `json:"terminal"`
}

// has reports whether the editor may be asked something: what the protocol has no capability for it may be, and can refuse.
func (o *offers) has(method string) bool {
	switch {
	case method == acp.MethodReadFile:
		return o.FS.Read
	case method == acp.MethodWriteFile:
		return o.FS.Write
	}
	return o.Terminal || !strings.HasPrefix(method, acp.TerminalMethods)
}

// initialize starts a process, and answers as that does.
func (s *server) initialize(m acp.Message) {
	params, err := acp.Read[struct {
		ProtocolVersion int    `json:"protocolVersion"`
		Capabilities    offers `json:"clientCapabilities"`
	}](m.Params)
	switch {
	case s.begun():
		s.refuse(m, acp.CodeInvalidRequest, "initialize was answered before")
		return
	case err != nil:
		s.refuse(m, acp.CodeInvalidParams, "the params are "+err.Error())
		return
	}
	as := acp.With(m.Params, "protocolVersion", acp.Version)
	if acp.Member(as, "clientInfo") == nil {
		as = acp.With(as, "clientInfo", acp.Info{Name: "mooring", Title: "Mooring", Version: s.cfg.Run.Version})
	}
	started, err := s.start(as)
	if err != nil {
		s.conn.send(acp.Failure(m.ID, asError(err)))
		return
	}
	s.mu.Lock()
	s.client, s.offers = as, params.Capabilities
	s.mu.Unlock()
	s.spare <- started
	s.conn.send(acp.Result(m.ID, ours(started.Said())))
}

// start starts a process.
func (s *server) start(as json.RawMessage) (*acprun.Started, error) {
	cfg := s.cfg.Run
	cfg.Initialize = as
	return acprun.Start(s.ctx, cfg)
}

// ours returns an agent's answer to initialize as the editor gets it: sessions are Mooring's.
func ours(said json.RawMessage) json.RawMessage {
	can := acp.Member(said, "agentCapabilities")
	of := map[string]any{"close": struct{}{}, "resume": struct{}{}}
	if more := acp.Member(acp.Member(can, "sessionCapabilities"), "additionalDirectories"); more != nil {
		of["additionalDirectories"] = more
	}
	can = acp.With(acp.With(can, "loadSession", true), "sessionCapabilities", of)
	return acp.With(said, "agentCapabilities", can)
}

// pass passes a request on to a process without a session, as for logging in. The next session takes that over.
func (s *server) pass(m acp.Message) {
	var started *acprun.Started
	select {
	case started = <-s.spare:
	default:
		s.mu.Lock()
		as := s.client
		s.mu.Unlock()
		var err error
		if started, err = s.start(as); err != nil {
			s.conn.send(acp.Failure(m.ID, asError(err)))
			return
		}
	}
	answer, err := started.Call(s.ctx, m.Method, m.Params)
	if err != nil { // the process has ended
		s.conn.send(acp.Failure(m.ID, asError(err)))
		return
	}
	s.spare <- started
	s.conn.send(acp.PassedOn(m.ID, answer))
}
