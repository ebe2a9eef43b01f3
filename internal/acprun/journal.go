package acprun

// The journal of a session's runs: what must be known after the runner was killed.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/agentproc"
	"github.com/mooring-rpc/mooring/internal/filelock"
	"github.com/mooring-rpc/mooring/internal/newfile"
)

// record is a line of the journal. What it has replaces what was known of the same.
type record struct {
	Agent  *agentproc.Identity `json:"agent,omitempty"` // it is being started, or was
	Ended  string              `json:"ended,omitempty"` // the mark of an agent of which nothing is left
	ACP    *acpSession         `json:"acp,omitempty"`
	Begun  int64               `json:"begun,omitempty"` // acprecord.Recorder.Begun
	Prompt *prompt             `json:"prompt,omitempty"`
}

// acpSession is the agent's own session.
type acpSession struct {
	ID  string `json:"id"`
	Dir string `json:"dir"`
}

// prompt is what the journal knows of a prompt.
type prompt struct {
	Request string `json:"request"`
	Stage   Stage  `json:"stage"`
	Claim   uint64 `json:"claim,omitempty"`
	User    string `json:"user,omitempty"` // ids of the messages
	Turn    string `json:"turn,omitempty"`
	UUID    string `json:"uuid,omitempty"`  // of the message, for the agent
	Begin   string `json:"begin,omitempty"` // ids of the batches that begin and end the turn
	End     string `json:"end,omitempty"`
	At      int64  `json:"at,omitempty"`    // Unix ms, when it was taken
	First   bool   `json:"first,omitempty"` // its batch puts the session's value

	fresh  bool            // it was taken in this run
	result json.RawMessage // of the agent, as the editor gets it
	failed error           // why there is none
}

// journal is the open file, with what it says.
type journal struct {
	f       *os.File
	lock    *os.File
	failed  error                          // of a write: nothing is written behind half a record
	agents  map[string]*agentproc.Identity // that may have something left, by mark
	acp     *acpSession
	begun   int64
	prompts map[string]*prompt // by request, those that have not ended
	records int                // in the file
}

// maxJournal bounds the file; it is written anew when it has more than maxRecords.
const (
	maxJournal = 64 << 20
	maxRecords = 1000
)

// openJournal opens or makes a session's journal. The lock, which one runner at a time has, is on a file beside it: it stays the
// same when the journal is written anew.
func openJournal(name string) (*journal, error) {
	lock, err := filelock.Open(name + ".lock")
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return nil, fault.InUse.With("another mooring run, or mooring acp, has this session: end that first")
	case lock == nil:
		return nil, fmt.Errorf("lock the journal: %w", err)
	} // else it is locked, or on a file system without locks
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal: %w", err), filelock.Close(lock))
	}
	j := &journal{f: f, lock: lock, agents: map[string]*agentproc.Identity{}, prompts: map[string]*prompt{}}
	if err := j.read(); err != nil {
		return nil, errors.Join(err, f.Close(), filelock.Close(lock))
	}
	return j, nil
}

// read reads the records. A last line that is cut off was not synced, and so nothing was done after it.
func (j *journal) read() error {
	info, err := j.f.Stat()
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	if info.Size() > maxJournal {
		return fault.OutboxDamaged.With("the journal %s has %d bytes: it is damaged", j.f.Name(), info.Size())
	}
	in, whole := bufio.NewReader(j.f), int64(0)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return fault.OutboxDamaged.Because(err, "the journal %s is damaged at byte %d: prompts of which it does not know end as unknown if you remove it; look first for an agent that still runs", j.f.Name(), whole)
		}
		j.take(&r)
		whole += int64(len(line))
	}
	if err := j.f.Truncate(whole); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	_, err = j.f.Seek(whole, io.SeekStart)
	return err
}

// take takes over what a record says.
func (j *journal) take(r *record) {
	j.records++
	if r.Agent != nil {
		j.agents[r.Agent.Mark] = r.Agent
	}
	delete(j.agents, r.Ended)
	if r.ACP != nil {
		j.acp = r.ACP
	}
	if r.Begun != 0 {
		j.begun = r.Begun
	}
	if p := r.Prompt; p != nil {
		j.prompts[p.Request] = p
		if p.Stage == Done {
			delete(j.prompts, p.Request)
		}
	}
}

// write makes a record durable.
func (j *journal) write(r record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if j.failed == nil {
		_, j.failed = j.f.Write(append(line, '\n'))
	}
	if j.failed == nil {
		j.failed = j.f.Sync()
	}
	if j.failed != nil {
		return fmt.Errorf("write the journal: %w", j.failed)
	}
	j.take(&r)
	return nil
}

// close closes the file, and gives the lock back. One that has grown is written anew.
func (j *journal) close() error {
	err := j.f.Close()
	if err == nil && j.failed == nil && j.records > maxRecords {
		err = j.writeAnew()
	}
	return errors.Join(err, filelock.Close(j.lock))
}

func (j *journal) writeAnew() error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	all := []record{{ACP: j.acp, Begun: j.begun}}
	for _, id := range j.agents {
		all = append(all, record{Agent: id})
	}
	for _, p := range j.prompts {
		all = append(all, record{Prompt: p})
	}
	for _, r := range all {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return newfile.Replace(j.f.Name(), text.Bytes())
}
