package a2astore

// Tasks as values of a session, and back.

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// The kinds of keys.
const (
	kindTask     = "a2a_task"
	kindMessage  = "a2a_message"
	kindArtifact = "a2a_artifact"
	kindPart     = "a2a_part"
	kindSent     = "a2a_sent"
)

// taskRow is the value of a task's own key.
type taskRow struct {
	User     string    `json:"user"`
	Revision uint64    `json:"revision"` // counts the changes, so that each is one
	Task     *a2a.Task `json:"task"`     // without history and artifacts
}

// sentRow is the value that says where a message went.
type sentRow struct {
	Task a2a.TaskID `json:"task"`
}

// row is a value, with its key.
type row struct {
	key   string
	value json.RawMessage
}

// maxID is the longest id in a key, in bytes.
const maxID = 200

// escape returns an id as a part of a key: what a key cannot have, and + itself, is + and two hexadecimal digits.
func escape(id string) (string, error) {
	var b strings.Builder
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == ':' || c == '@' || c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "+%02X", c)
		}
	}
	if b.Len() == 0 || b.Len() > maxID {
		return "", fmt.Errorf("%w: an id has 1 to %d bytes, and those that are not letters, digits or one of _.:@- count three times", a2a.ErrInvalidRequest, maxID)
	}
	return b.String(), nil
}

// taskKey returns the key of a task's own value.
func taskKey(id a2a.TaskID) (string, error) {
	e, err := escape(string(id))
	return kindTask + "/" + e, err
}

// sentKey returns the key that says where a user's message went.
func sentKey(user, message string) (string, error) {
	sum := sha256.Sum256([]byte(user)) // a user's name is of any length
	e, err := escape(message)
	return kindSent + "/" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]) + "/" + e, err
}

// rowsOf returns a task's values: its own first, then those of its history and artifacts.
func rowsOf(t *a2a.Task, user string, revision uint64) ([]row, error) {
	id, err := escape(string(t.ID))
	if err != nil {
		return nil, err
	}
	var rows []row
	add := func(v any, kind string, at ...int) {
		if err != nil {
			return
		}
		key := kind + "/" + id
		for _, n := range at {
			key += "/" + strconv.Itoa(n)
		}
		var text []byte
		if text, err = json.Marshal(v); err != nil {
			err = fmt.Errorf("task %s: %w", t.ID, err)
			return
		}
		rows = append(rows, row{key, text})
	}
	own := *t
	own.History, own.Artifacts = nil, nil
	add(&taskRow{user, revision, &own}, kindTask)
	for i, m := range t.History {
		add(m, kindMessage, i)
	}
	for i, a := range t.Artifacts {
		meta := *a
		meta.Parts = a2a.ContentParts{}
		add(&meta, kindArtifact, i)
		for j, p := range a.Parts {
			add(p, kindPart, i, j)
		}
	}
	return rows, err
}

// taskOf returns the task of some values, in any order.
func taskOf(rows []row) (*taskRow, error) {
	var t taskRow
	history := map[int]*a2a.Message{}
	artifacts := map[int]*a2a.Artifact{}
	parts := map[int]map[int]*a2a.Part{}
	for _, r := range rows {
		kind, rest, _ := strings.Cut(r.key, "/")
		at, err := numbers(rest)
		switch {
		case err != nil:
		case kind == kindTask && len(at) == 0:
			err = json.Unmarshal(r.value, &t)
		case kind == kindMessage && len(at) == 1:
			m := &a2a.Message{}
			err = json.Unmarshal(r.value, m)
			history[at[0]] = m
		case kind == kindArtifact && len(at) == 1:
			a := &a2a.Artifact{}
			err = json.Unmarshal(r.value, a)
			a.Parts = nil
			artifacts[at[0]] = a
		case kind == kindPart && len(at) == 2:
			p := &a2a.Part{}
			err = json.Unmarshal(r.value, p)
			if parts[at[0]] == nil {
				parts[at[0]] = map[int]*a2a.Part{}
			}
			parts[at[0]][at[1]] = p
		default:
			err = fmt.Errorf("it is of no task")
		}
		if err != nil {
			return nil, fmt.Errorf("the value of %s: %w", r.key, err)
		}
	}
	if t.Task == nil {
		return nil, a2a.ErrTaskNotFound
	}
	t.Task.History = inOrder(history)
	for i, a := range artifacts {
		a.Parts = inOrder(parts[i])
	}
	t.Task.Artifacts = inOrder(artifacts)
	return &t, nil
}

// numbers returns what stands behind the task's id in a key.
func numbers(rest string) (at []int, err error) {
	_, rest, more := strings.Cut(rest, "/")
	for more {
		var text string
		text, rest, more = strings.Cut(rest, "/")
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		at = append(at, n)
	}
	return at, nil
}

// inOrder returns values by their numbers; nil for none.
func inOrder[T any](m map[int]T) (list []T) {
	keys := make([]int, 0, len(m))
	for n := range m {
		keys = append(keys, n)
	}
	slices.Sort(keys)
	for _, n := range keys {
		list = append(list, m[n])
	}
	return list
}
