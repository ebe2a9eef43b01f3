package acprun

// The start of an agent's process, for a run or before there is one: what it says of itself is known before a session is made.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/agentproc"
)

// start starts the agent's process.
func (cfg *Config) start(mark string) (*agentproc.Process, error) {
	return agentproc.Start(agentproc.Config{Command: cfg.Command, Dir: cfg.Dir, Env: environ(), Mark: mark, Grace: cfg.Grace})
}

// environ returns this process's environment without what is Mooring's: it may have refs, and passwords of databases.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MOORING_") })
}

// initialize returns what the agent is told of its client.
func (cfg *Config) initialize() any {
	if cfg.Initialize != nil {
		return cfg.Initialize
	}
	return acp.InitializeParams{ProtocolVersion: acp.Version, Client: acp.Info{Name: "mooring", Title: "Mooring", Version: cfg.Version}}
}

// initialized reads the agent's answer to that.
func initialized(m acp.Message) (info acp.Initialized, err error) {
	if m.Error != nil {
		return info, fmt.Errorf("the agent refused to begin: %w", m.Error)
	}
	switch info, err = acp.Read[acp.Initialized](m.Result); {
	case err != nil:
		err = fmt.Errorf("the agent's answer to initialize is %w", err)
	case info.ProtocolVersion != acp.Version:
		err = fmt.Errorf("the agent speaks version %d of the protocol, and this is for version %d", info.ProtocolVersion, acp.Version)
	}
	return info, err
}

// Started is an agent's process that has no session yet. Its methods are for one goroutine at a time. What has it ends it, or
// gives it to a Run. No journal has it: when the process that has started it is killed, its standard input closes, and on Linux
// it is killed as well.
type Started struct {
	proc  *agentproc.Process
	calls uint64
	info  acp.Initialized
	said  json.RawMessage
}

// Start starts an agent, and asks what it is.
func Start(ctx context.Context, cfg Config) (*Started, error) {
	cfg.setDefaults()
	proc, err := cfg.start(agentproc.NewMark())
	if err != nil {
		return nil, err
	}
	s := &Started{proc: proc}
	wait, stop := context.WithTimeoutCause(ctx, cfg.StartWait, fmt.Errorf("the agent did not answer initialize within %v", cfg.StartWait))
	defer stop()
	m, err := s.Call(wait, acp.MethodInitialize, cfg.initialize())
	if err == nil {
		s.info, err = initialized(m)
	}
	if err != nil {
		return nil, errors.Join(err, s.End())
	}
	s.said = m.Result
	return s, nil
}

// Said returns the agent's answer to initialize.
func (s *Started) Said() json.RawMessage { return s.said }

// End ends the process.
func (s *Started) End() error { return s.proc.End(context.Background()) }

// ended reports whether the process has ended; nothing is left of it then.
func (s *Started) ended() bool {
	select {
	case <-s.proc.Exited():
		return s.End() == nil
	default:
		return false
	}
}

// Call asks the agent something, and waits for its answer. Where there is none, the process is ended.
func (s *Started) Call(ctx context.Context, method string, params any) (acp.Message, error) {
	s.calls++
	if err := s.proc.Send(acp.Call(s.calls, method, params), nil); err != nil {
		return acp.Message{}, errors.Join(err, s.End())
	}
	stop := context.AfterFunc(ctx, func() { _ = s.End() }) // which ends ReadLine
	defer stop()
	for rubbish := 0; ; {
		line, err := s.proc.ReadLine()
		if err != nil && err != agentproc.ErrLongLine {
			err = errors.Join(context.Cause(ctx), s.End())
			select {
			case <-s.proc.Exited():
				if err == nil {
					err = errors.New("the agent ended: " + s.proc.ExitText())
				}
			default:
			}
			if last := lastLines(s.proc.Stderr(), 5); last != "" {
				err = fmt.Errorf("%w; it printed last: %s", err, last)
			}
			return acp.Message{}, err
		}
		var m acp.Message
		if err == nil {
			m, err = acp.Decode(line)
		}
		switch {
		case err != nil:
			if rubbish++; rubbish > maxRubbish {
				return acp.Message{}, errors.Join(errors.New("the agent prints what is not of the protocol"), s.End())
			}
		case m.Kind == acp.Response && m.Call == s.calls:
			return m, nil
		case m.Kind == acp.Request:
			_ = s.proc.Send(acp.Refusal(m.ID, acp.CodeMethodNotFound, m.Method+": there is no session yet"), nil) // ReadLine tells
		}
	}
}
