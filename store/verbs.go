// The server's verbs that write without a batch: the first start, opening a
// stream, audit.

package store

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// firstSpace is the name in meta of the space that the first start made.
const firstSpace = "first_space"

// Init makes the first space, with root as its ref, if the database has none;
// root.Target is its id. It returns the first space's id and whether this call
// made it: of any number of servers that start at once, one does. A later call
// with the same root finds it made.
func (s *Store) Init(ctx context.Context, root *capability.Grant) (space string, created bool, err error) {
	err = s.update(ctx, func(t *tx) error {
		// Who comes second waits here for the first to commit, and then finds
		// the other's name.
		found := false
		t.run.Queue(claimMeta, nil, []any{firstSpace, root.Target}, nil)
		t.run.Queue(readMeta, nil, []any{firstSpace}, func(row Scanner) error { return row.Scan(&space) })
		t.run.QueueNow(clock(&t.now))
		t.run.Queue(readGrants, refs([]string{root.ID}), nil, func(Scanner) error {
			found = true
			return nil
		})
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		if space != root.Target || found {
			return nil
		}
		created = true
		mine := *root
		if mine.Created == 0 {
			mine.Created = t.now
		}
		t.run.Queue(insertSpace, nil, []any{space, t.now}, nil)
		return t.Save(ctx, &session.Changes{Grants: []*capability.Grant{&mine}})
	})
	if err != nil {
		return "", false, naming("init", err)
	}
	return space, created, nil
}

// OpenStream opens the stream that an outbox's secret opens (session.StreamFor), or makes
// it. WrongOutbox if it can open none, Fenced below the stored incarnation; one above it
// fences whoever had that. One of a ref that can change nothing is not made
// (session.ErrIdle) where that ref has made as many as it may. The caller has checked that
// whoever asks holds the session's capability; a session that is not there yet gets an
// Absent row.
func (s *Store) OpenStream(ctx context.Context, o session.StreamOpening) (stream *ledger.Stream, err error) {
	if err := sound(o.Key.Session, o.Key.Outbox, o.Idle); err != nil {
		return nil, err
	}
	leave, err := s.doors.enter(ctx, o.Key.Session)
	if err != nil {
		return nil, naming("open stream", err)
	}
	defer leave()
	var refused error
	err = s.update(ctx, func(t *tx) error {
		rows, err := t.Load(ctx, &session.Want{Sessions: []string{o.Key.Session}, Streams: session.StreamKeys(o.Key, o.SecretHash)})
		if err != nil {
			return err
		}
		at, found, taken := session.StreamFor(o.Key, o.SecretHash, rows.Streams)
		stream = found
		switch {
		case taken:
			refused = fault.WrongOutbox.With("the outbox's id is another outbox's in this session: use the outbox that made the stream, or one with another id")
			return refused
		case stream == nil:
			full, err := t.fullOfIdle(ctx, &o)
			if err != nil {
				return err
			}
			if full {
				refused = session.ErrIdle
				return refused
			}
			stream = &ledger.Stream{Session: at.Session, Outbox: at.Outbox, SecretHash: o.SecretHash, Incarnation: o.Incarnation, Idle: o.Idle}
		case o.Incarnation < stream.Incarnation:
			refused = fault.Fenced.With("incarnation %d of the outbox was taken over by incarnation %d", o.Incarnation, stream.Incarnation)
			return refused
		case o.Done(stream):
			return nil
		default:
			stream.Incarnation = o.Incarnation
			if o.Idle == "" {
				stream.Idle = ""
			}
		}
		return t.Save(ctx, &session.Changes{Streams: []*ledger.Stream{stream}})
	})
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, naming("open stream", err)
	}
	return stream, nil
}

// fullOfIdle says whether a ref that can change nothing has made as many streams as it may.
func (t *tx) fullOfIdle(ctx context.Context, o *session.StreamOpening) (full bool, err error) {
	if o.Idle == "" {
		return false, nil
	}
	t.run.Queue(nthIdle, nil, []any{o.Idle, int64(o.MostIdle) - 1}, func(Scanner) error {
		full = true
		return nil
	})
	return full, t.run.Flush(ctx)
}

// sound refuses texts of a peer's making that a database would not take, or
// would not give back as they were.
func sound(texts ...string) error {
	for _, text := range texts {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fault.BadArgument.With("a name in the call is not UTF-8 text, or has a NUL in it")
		}
	}
	return nil
}

// Audit writes a page of audit rows that no transaction of theirs carries: denials of
// calls, and strangers' in numbers.
func (s *Store) Audit(ctx context.Context, page capability.Page, rows []*capability.AuditRow) error {
	if len(rows) == 0 {
		return nil
	}
	return naming("audit", s.once(ctx, page, func(t *tx) error {
		return t.Save(ctx, &session.Changes{Audit: rows})
	}))
}
