package a2astore

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// Config configures a Store.
type Config struct {
	// Authenticator says whose call it is: a task is seen and changed by the user who created it, and is not found by others. With nil all are one user's.
	Authenticator taskstore.Authenticator
}

// Store keeps tasks in a session. It is safe for concurrent use, as are several of one session, in any processes.
type Store struct {
	session *client.Session
	user    taskstore.Authenticator

	mu    sync.Mutex // guards known
	known map[a2a.TaskID]*stored
}

// ErrRepeated is the error of a task with a message that its user has sent before: it is in a task already, which Repeats answers with.
var ErrRepeated = fmt.Errorf("the message was sent before: %w", taskstore.ErrTaskAlreadyExists)

var _ taskstore.Store = (*Store)(nil)

// stored is what the session has of a task at a version: an update of that version need not read it. It does not change.
type stored struct {
	version  uint64 // cursor of the task's own value
	user     string
	revision uint64
	rows     map[string][sha256.Size]byte // the values' digests, by key
	sent     map[string]int               // how often its history has each of the user's messages, by id
}

// maxKnown bounds the tasks in Store.known.
const maxKnown = 1000

// New returns a store in a session, whose ref needs the rights read and append.
func New(s *client.Session, cfg Config) *Store {
	user := cfg.Authenticator
	if user == nil {
		user = func(context.Context) (string, error) { return "", nil }
	}
	return &Store{session: s, user: user, known: map[a2a.TaskID]*stored{}}
}

// Create implements taskstore.Store. The error is ErrRepeated if a message of the user in the task is in another one: sent again, it makes no second task.
func (s *Store) Create(ctx context.Context, t *a2a.Task) (taskstore.TaskVersion, error) {
	user, err := s.caller(ctx)
	if err != nil {
		return taskstore.TaskVersionMissing, err
	}
	version, err := s.write(ctx, t, &stored{user: user})
	if errors.Is(err, taskstore.ErrConcurrentModification) {
		err = taskstore.ErrTaskAlreadyExists
	}
	return version, err
}

// Update implements taskstore.Store. With taskstore.TaskVersionMissing it updates whatever version there is. The error is ErrRepeated if a new message of the
// user is in a task already.
func (s *Store) Update(ctx context.Context, req *taskstore.UpdateRequest) (taskstore.TaskVersion, error) {
	user, err := s.caller(ctx)
	if err != nil {
		return taskstore.TaskVersionMissing, err
	}
	for {
		was := s.recall(req.Task.ID)
		if was == nil || req.PrevVersion != taskstore.TaskVersion(was.version) {
			if _, was, err = s.read(ctx, req.Task.ID); err != nil {
				return taskstore.TaskVersionMissing, err
			}
		}
		switch {
		case was.user != user:
			return taskstore.TaskVersionMissing, a2a.ErrTaskNotFound
		case req.PrevVersion != taskstore.TaskVersionMissing && req.PrevVersion != taskstore.TaskVersion(was.version):
			return taskstore.TaskVersionMissing, taskstore.ErrConcurrentModification
		}
		version, err := s.write(ctx, req.Task, was)
		if !errors.Is(err, taskstore.ErrConcurrentModification) || req.PrevVersion != taskstore.TaskVersionMissing {
			return version, err
		} // else it is to be on whatever there is
	}
}

// Get implements taskstore.Store.
func (s *Store) Get(ctx context.Context, id a2a.TaskID) (*taskstore.StoredTask, error) {
	user, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	t, is, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if is.user != user {
		return nil, a2a.ErrTaskNotFound
	}
	return &taskstore.StoredTask{Task: t, Version: taskstore.TaskVersion(is.version), User: user}, nil
}

// caller returns the user of a call.
func (s *Store) caller(ctx context.Context) (string, error) {
	user, err := s.user(ctx)
	if err != nil {
		return "", fmt.Errorf("taskstore auth failed: %w", err)
	}
	return user, nil
}

// recall returns what is known of a task; nil for nothing.
func (s *Store) recall(id a2a.TaskID) *stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id]
}

// remember replaces what is known of a task. Where there is no room, any other is forgotten.
func (s *Store) remember(id a2a.TaskID, is *stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.known[id]; before != nil && before.version > is.version {
		return // it was read before the other was written
	}
	s.known[id] = is
	for other := range s.known {
		if len(s.known) <= maxKnown {
			break
		}
		if other != id {
			delete(s.known, other)
		}
	}
}

// read returns a task, all of one moment, and what the session has of it.
func (s *Store) read(ctx context.Context, id a2a.TaskID) (*a2a.Task, *stored, error) {
	key, err := taskKey(id)
	if err != nil {
		return nil, nil, a2a.ErrTaskNotFound // none can have it
	}
	below := key[len(kindTask):] + "/"
	state, err := s.session.SnapshotOfKeys(ctx, client.Position{}, []string{key, kindMessage + below, kindArtifact + below, kindPart + below})
	if err != nil {
		return nil, nil, fmt.Errorf("read task %s: %w", id, err)
	}
	is := &stored{}
	rows := make([]row, 0, len(state.Entries))
	for _, e := range state.Entries {
		rows = append(rows, row{e.Key, e.Payload})
		if e.Key == key {
			is.version = e.Cursor
		}
	}
	t, err := taskOf(rows)
	if err != nil {
		return nil, nil, err
	}
	is.rows, is.user, is.revision, is.sent = digests(rows), t.User, t.Revision, sentIn(t.Task)
	s.remember(id, is)
	return t.Task, is, nil
}

// write writes what a task has and the session has not, in one atomic batch, on a version of it. ErrConcurrentModification is the error if that is not the
// present one.
func (s *Store) write(ctx context.Context, t *a2a.Task, was *stored) (taskstore.TaskVersion, error) {
	rows, err := rowsOf(t, was.user, was.revision+1)
	if err != nil {
		return taskstore.TaskVersionMissing, err
	}
	b := s.session.Batch().Atomic()
	own := b.Put(rows[0].key, rows[0].value).ExpectKey(was.version)
	is := &stored{user: was.user, revision: was.revision + 1, rows: digests(rows), sent: sentIn(t)}
	changed, gone := was.compare(rows[1:], is.rows)
	for _, r := range changed {
		b.Put(r.key, r.value)
	}
	for _, key := range gone {
		b.Remove(key)
	}
	sent, err := s.noteSent(b, t, was)
	if err != nil {
		return taskstore.TaskVersionMissing, err
	}
	results, err := b.CommitWait(ctx)
	if len(results) == 0 {
		return taskstore.TaskVersionMissing, fmt.Errorf("write task %s: %w", t.ID, err)
	}
	o, err := results.Of(own)
	switch {
	case err != nil:
		return taskstore.TaskVersionMissing, err
	case o.Status == client.Applied:
		is.version = o.Cursor
		s.remember(t.ID, is)
		return taskstore.TaskVersion(o.Cursor), nil
	case isConflict(o):
		return taskstore.TaskVersionMissing, taskstore.ErrConcurrentModification
	}
	for message, p := range sent {
		if o, err := results.Of(p); err == nil && isConflict(o) {
			return taskstore.TaskVersionMissing, fmt.Errorf("message %s: %w", message, ErrRepeated)
		}
	}
	return taskstore.TaskVersionMissing, fmt.Errorf("write task %s: %w", t.ID, results.Err())
}

func digests(rows []row) map[string][sha256.Size]byte {
	sums := make(map[string][sha256.Size]byte, len(rows))
	for _, r := range rows {
		sums[r.key] = sha256.Sum256(r.value)
	}
	return sums
}

// compare returns those of rows, whose digests are among now, that are not stored so, and the keys that are stored and not in now.
func (is *stored) compare(rows []row, now map[string][sha256.Size]byte) (changed []row, gone []string) {
	for _, r := range rows {
		if before, there := is.rows[r.key]; !there || before != now[r.key] {
			changed = append(changed, r)
		}
	}
	for key := range is.rows {
		if _, there := now[key]; !there {
			gone = append(gone, key)
		}
	}
	return changed, gone
}

// isConflict reports whether an op of an atomic batch is what the batch was aborted for, by a conflict.
func isConflict(o *client.Outcome) bool {
	return o.Reason == fault.Conflict && (o.Cause == "" || o.Cause == o.OpID)
}

// sentIn counts the user's messages in a task's history, by id.
func sentIn(t *a2a.Task) map[string]int {
	ids := map[string]int{}
	for _, m := range t.History {
		if m.Role == a2a.MessageRoleUser && m.ID != "" {
			ids[m.ID]++
		}
	}
	return ids
}

// noteSent has a batch note where the user's messages went of which a task has more than it had: the note of one that was there already is a conflict.
func (s *Store) noteSent(b *client.Batch, t *a2a.Task, was *stored) (sent map[string]*client.Promise, err error) {
	sent = map[string]*client.Promise{}
	for id, n := range sentIn(t) {
		if n <= was.sent[id] {
			continue
		}
		key, err := sentKey(was.user, id)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(sentRow{t.ID})
		if err != nil {
			return nil, err
		}
		sent[id] = b.Put(key, json.RawMessage(value)).ExpectKey(uint64(0))
	}
	return sent, nil
}
