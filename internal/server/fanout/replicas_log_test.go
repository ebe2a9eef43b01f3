//go:build unix

// The database of three replicas' hubs (replicas_property_test.go): logs with chained hashes, and refs of every sight.

package fanout

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// commonLog is a session's log in the database. Its mutex is the lock of the session's row.
type commonLog struct {
	c  *cluster
	id string

	mu     sync.Mutex
	row    session.Row
	events []*session.Event
	grants map[string]*capability.Grant // a map and grants that are there do not change
	bumps  map[uint64]uint64            // epochs, and the cuts at which they ended
	refs   []string                     // those that live
}

var clusterKey = session.HashKey{1, 2, 3}

var logKeys = []string{"message/msg_1", "message/msg_2", "part/msg_1/prt_1", "part/msg_2/prt_1", "todo/1", "todo/2", "note/a"}

// write commits a few events, the first or last of which may be a change of authority.
func (l *commonLog) write(d *dice, change func(cut uint64)) *session.PublishedSession {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, n, at := len(l.events), 1+d.n(3), 0
	if change != nil {
		at = 1 + d.n(n)
	}
	for i := range n {
		size := d.n(300)
		if d.chance(5) {
			size = oneOf(d, 4000, 20_000)
		}
		e := &session.Event{Session: l.id, Cursor: l.row.Cursor + 1, At: clock(), Method: session.MethodPut, Key: oneOf(d, logKeys...), Payload: make([]byte, 1+size)}
		if d.chance(10) {
			e.Method, e.Key, e.Payload = session.MethodFinalize, oneOf(d, "message/msg_1", "message/msg_2"), l.endOfTurn(d)
		}
		e.Sum = session.SumOf(e.Payload)
		e.Hash = session.HashEvent(l.row.Head, e)
		l.events = append(l.events, e)
		l.row.Cursor, l.row.Head = e.Cursor, e.Hash
		if i+1 == at {
			l.row.AuthGen++
			change(e.Cursor)
		}
	}
	return &session.PublishedSession{Row: l.row, Events: session.NewUnscopedEvents(l.events[first:len(l.events):len(l.events)]), AuthChanged: change != nil}
}

// embedded are values that the end of a turn embeds, with the cursors that they were written at.
type embedded struct {
	Entries []embeddedValue `json:"entries"`
}

type embeddedValue struct {
	Key   string `json:"key"`
	JSON  string `json:"payload"`
	Since uint64 `json:"since"`
}

// endOfTurn is the payload of one. mu is held.
func (l *commonLog) endOfTurn(d *dice) []byte {
	var list embedded
	for _, key := range logKeys[:4] {
		list.Entries = append(list.Entries, embeddedValue{key, "{}", 1 + uint64(d.n(int(l.row.Cursor)+1))})
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return text
}

// mint makes a ref of some sight, from another one or none. The caller is alone with the log, or holds mu.
func (l *commonLog) mint(d *dice) string {
	g := &capability.Grant{ID: fmt.Sprintf("%s.r%d", l.id, len(l.grants)), Target: l.id, Rights: capability.Read, Epoch: l.row.Epoch}
	switch d.n(8) {
	case 0:
		g.Message = oneOf(d, "msg_1", "msg_2")
	case 1:
		g.ReadKeys = oneOf(d, []string{"todo/"}, []string{"todo/1", "message/"}, []string{"note/a"})
	case 2:
		g.VisibleFrom = uint64(d.n(int(l.row.Cursor) + 8))
	case 3:
		g.Message, g.VisibleFrom = "msg_1", uint64(d.n(int(l.row.Cursor)+8))
	case 4:
		g.Owner, g.Epoch = true, 0
	}
	if len(l.refs) > 0 && d.chance(50) {
		g.Parent = oneOf(d, l.refs...)
	}
	l.grants, l.refs = maps.Clone(l.grants), append(l.refs, g.ID)
	l.grants[g.ID] = g
	return g.ID
}

// revoke ends a ref and all below it. mu is held.
func (l *commonLog) revoke(ref string, cut uint64) {
	grants := maps.Clone(l.grants)
	for id, g := range l.grants {
		up := g
		for up != nil && up.ID != ref {
			up = l.grants[up.Parent]
		}
		if up != nil && g.Revoked == 0 {
			dead := *g
			dead.Revoked, dead.Cut = clock(), cut
			grants[id] = &dead
		}
	}
	l.grants = grants
	l.refs = slices.DeleteFunc(l.refs, func(id string) bool { return grants[id].Revoked != 0 })
}

// bump ends all refs of the epoch. mu is held.
func (l *commonLog) bump(cut uint64) {
	l.bumps[l.row.Epoch] = cut
	l.row.Epoch++
	l.refs = slices.DeleteFunc(l.refs, func(id string) bool { return !l.grants[id].Owner })
}

// now is the log's row, a ref's grant, and the cut at which it died; 0 if it lives.
func (l *commonLog) now(ref string) (row session.Row, g *capability.Grant, cut uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g = l.grants[ref]
	switch {
	case g.Revoked != 0:
		cut = g.Cut
	case !g.Owner && g.Epoch != l.row.Epoch:
		cut = l.bumps[g.Epoch]
	}
	return l.row, g, cut
}

// event is the one at a cursor.
func (l *commonLog) event(cursor uint64) *session.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cursor == 0 || cursor > uint64(len(l.events)) {
		return nil
	}
	return l.events[cursor-1]
}

// clusterStore is the database as a hub reads it: each read is of one moment, and takes its time.
type clusterStore struct {
	HubStore
	c    *cluster
	dice *dice
}

func (st clusterStore) log(id string) *commonLog {
	return st.c.logs[slices.IndexFunc(st.c.logs, func(l *commonLog) bool { return l.id == id })]
}

func (st clusterStore) pause(most int) {
	if n := st.dice.n(most); n > 0 {
		time.Sleep(time.Duration(n) * time.Millisecond)
	}
}

func (st clusterStore) ReadLog(_ context.Context, id string, after uint64, maxBytes, maxEvents int, _ []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	l := st.log(id)
	st.pause(3)
	l.mu.Lock()
	row, bytes := l.row, 0
	page := &session.LogPage{Access: session.Access{Now: clock(), Row: &row, Grants: l.grants, Key: clusterKey}, Hashes: map[uint64]session.Hash{}}
	for _, e := range l.events[min(after, row.Cursor):] {
		if bytes += e.Bytes(); len(page.Events) > 0 && (bytes > maxBytes || len(page.Events) == maxEvents) {
			page.More = true
			break
		}
		read := *e // each read makes events anew
		page.Events = append(page.Events, &read)
	}
	for _, cursor := range hashesAt {
		if cursor > 0 && cursor <= row.Cursor {
			page.Hashes[cursor] = l.events[cursor-1].Hash
		}
	}
	l.mu.Unlock()
	st.pause(3)
	return session.NewUnscoped(page), nil
}

func (st clusterStore) ReadRows(_ context.Context, ids []string) (map[string]*session.Row, error) {
	rows := map[string]*session.Row{}
	for _, id := range ids {
		l := st.log(id)
		l.mu.Lock()
		row := l.row
		l.mu.Unlock()
		rows[id] = &row
	}
	return rows, nil
}
