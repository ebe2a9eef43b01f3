// Package recorded reads recordings of real sessions, and a session with every kind of part, as
// state for pages: for tests and previews.
package recorded

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/session"
)

// State is a session's folded state.
type State struct {
	ID      string
	Cursor  uint64
	Entries map[string]*session.Entry // by key
	Turns   map[string]*session.Turn  // by message id
}

// put sets a key.
func (s *State) put(key string, payload []byte) {
	s.Cursor++
	s.Entries[key] = &session.Entry{Session: s.ID, Key: key, Cursor: s.Cursor, Schema: 1, Payload: payload}
}

// Read returns the state of a recording (testdata/opencode/*.jsonl).
func Read(file string) (*State, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	s := &State{Entries: map[string]*session.Entry{}, Turns: map[string]*session.Turn{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			Body struct {
				Data []item
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, err
		}
		for _, it := range line.Body.Data {
			if err := s.add(it); err != nil {
				return nil, err
			}
		}
	}
	return s, lines.Err()
}

// item is one piece of a sync.
type item struct {
	Type string
	Data json.RawMessage
}

func (s *State) add(it item) error {
	var id struct{ ID, MessageID string }
	if bytes.HasPrefix(it.Data, []byte("{")) {
		if err := json.Unmarshal(it.Data, &id); err != nil {
			return err
		}
	}
	switch it.Type {
	case "session":
		s.ID = id.ID
		s.put("session", it.Data)
	case "message":
		s.put(session.MessageKey(id.ID), it.Data)
	case "part":
		s.put(session.PartKey(id.MessageID, id.ID), it.Data)
	case "session_diff":
		s.put("session_diff", fmt.Appendf(nil, `{"diff":%s}`, it.Data))
	case "model":
		var models []json.RawMessage
		if err := json.Unmarshal(it.Data, &models); err != nil {
			return err
		}
		for _, m := range models {
			if err := json.Unmarshal(m, &id); err != nil {
				return err
			}
			s.put("model/"+id.ID, m)
		}
	}
	return nil
}

//go:embed kinds.jsonl
var kinds []byte

// Kinds returns a session with a part of every type and state, read from lines {"key", "payload"}
// with, for messages, "turn".
func Kinds() (*State, error) {
	s := &State{ID: "kinds", Entries: map[string]*session.Entry{}, Turns: map[string]*session.Turn{}}
	dec := json.NewDecoder(bytes.NewReader(kinds))
	for {
		var line struct {
			Key     string
			Payload json.RawMessage
			Turn    session.TurnStatus
			Grown   uint64
		}
		if err := dec.Decode(&line); err == io.EOF {
			return s, nil
		} else if err != nil {
			return nil, err
		}
		s.put(line.Key, line.Payload)
		s.Entries[line.Key].LastAppend = line.Grown
		if id := strings.TrimPrefix(line.Key, "message/"); line.Turn != 0 {
			s.Turns[id] = &session.Turn{Message: id, Status: line.Turn}
		}
	}
}

// Keys returns the keys in byte order.
func (s *State) Keys() []string { return slices.Sorted(maps.Keys(s.Entries)) }

// Write writes the session's page as a server does.
func (s *State) Write(w io.Writer, h page.Head) error {
	h.Info = s.Entries["session"]
	d := page.Start(w, h)
	keys := s.Keys()
	var rest []*session.EntryInfo
	for _, key := range keys {
		switch {
		case strings.HasPrefix(key, "message/"):
			id := strings.TrimPrefix(key, "message/")
			d.Message(s.Entries[key], s.Turns[id])
			for _, part := range keys {
				if strings.HasPrefix(part, "part/"+id+"/") {
					d.Part(s.Entries[part])
				}
			}
		case !strings.HasPrefix(key, "part/") && key != "session":
			rest = append(rest, &session.EntryInfo{Entry: s.Entries[key]})
		}
	}
	d.Rest(rest)
	return d.End()
}
