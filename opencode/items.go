// Items as they are synced, read into puts.

package opencode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// Reader gathers the puts of items. The zero value is ready. One goroutine at a
// time may use it.
type Reader struct {
	Session string   // opencode's id of the session; "" until an item names it. Items of another are refused
	Created int64    // Unix ms, from the first session's info that says; else 0
	Puts    []Put    // in the order of the items
	Skipped []string // types of items that are not known here, as often as they came
}

// Items reads a sync's items {type, data}. The error is Malformed, names the item,
// and leaves the puts of those before it.
func (r *Reader) Items(items []json.RawMessage) error {
	for i, raw := range items {
		var item struct {
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(raw, &item); err != nil || item.Type == "" || item.Data == nil {
			return malformed("item %d is not {type, data}", i+1)
		}
		if err := r.Item(item.Type, item.Data); err != nil {
			return err
		}
	}
	return nil
}

// Item reads one item, whose data is JSON text. One of a type that is not known is
// skipped. The error is Malformed.
func (r *Reader) Item(kind string, data []byte) error {
	var id struct {
		ID        string `json:"id"`
		MessageID string `json:"messageID"`
		Time      struct {
			Created json.Number `json:"created"`
		} `json:"time"`
	}
	isObject := len(data) > 0 && data[0] == '{'
	if isObject {
		if err := json.Unmarshal(data, &id); err != nil {
			var wrongType *json.UnmarshalTypeError
			if !errors.As(err, &wrongType) || wrongType.Field == "id" || wrongType.Field == "messageID" {
				return malformed("a %s that cannot be read: %v", fault.Clip(kind), err)
			}
		}
	}
	need := func(fields ...string) error {
		if !isObject {
			return malformed("a %s that is not an object", kind)
		}
		for _, v := range fields {
			if v == "" {
				return malformed("a %s without its id", kind)
			}
		}
		return nil
	}
	switch kind {
	case "session":
		if err := need(id.ID); err != nil {
			return err
		}
		if err := r.Name(id.ID); err != nil {
			return err
		}
		if ms, err := id.Time.Created.Int64(); err == nil && r.Created == 0 {
			r.Created = ms
		}
		return r.put("session", data)
	case "message":
		if err := need(id.ID); err != nil {
			return err
		}
		return r.put(session.MessageKey(id.ID), data)
	case "part":
		if err := need(id.ID, id.MessageID); err != nil {
			return err
		}
		return r.put(session.PartKey(id.MessageID, id.ID), data)
	case "session_diff":
		if !isObject {
			data = wrapDiff(data)
		}
		return r.put("session_diff", data)
	case "model":
		return r.models(data)
	case "messages":
		return r.messages(data)
	}
	r.Skipped = append(r.Skipped, fault.Clip(kind))
	return nil
}

func (r *Reader) put(key string, payload []byte) error {
	if _, err := session.ParseKey(key); err != nil {
		return malformed("%s", err.Message)
	}
	r.Puts = append(r.Puts, Put{Key: key, Payload: payload})
	return nil
}

// Name says which session the items are of; "" says nothing.
func (r *Reader) Name(external string) error {
	if external == "" {
		return nil
	}
	if r.Session != "" && r.Session != external {
		return malformed("a second session (%s after %s): there is one session to a share, and to a file", fault.Clip(external), r.Session)
	}
	r.Session = external
	return nil
}

// models puts every model of an array, or a single one.
func (r *Reader) models(data []byte) error {
	models := []json.RawMessage{data}
	if len(data) > 0 && data[0] == '[' {
		if err := json.Unmarshal(data, &models); err != nil {
			return malformed("models that cannot be read: %v", err)
		}
	}
	for _, m := range models {
		var id struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(m, &id); err != nil || id.ID == "" {
			return malformed("a model without its id")
		}
		if err := r.put(modelKey(id.ID), m); err != nil {
			return err
		}
	}
	return nil
}

// modelKey is a model's key. People name models as they like: a name that no key
// can have stands by its digest; the value has it whole.
func modelKey(id string) string {
	key := "model/" + id
	if _, err := session.ParseKey(key); err != nil {
		sum := sha256.Sum256([]byte(id))
		key = "model/sha256:" + hex.EncodeToString(sum[:])
	}
	return key
}

// messages takes the newer form that carries whole messages with their parts.
func (r *Reader) messages(data []byte) error {
	var body struct {
		Messages []message `json:"messages"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return malformed("messages that cannot be read: %v", err)
	}
	for _, m := range body.Messages {
		if err := r.message(m, func(v []byte) []byte { return v }); err != nil {
			return err
		}
	}
	return nil
}

// message is one with its parts, in that form and in exports.
type message struct {
	Info  json.RawMessage   `json:"info"`
	Parts []json.RawMessage `json:"parts"`
}

// message puts a message and its parts, each as laid makes it.
func (r *Reader) message(m message, laid func([]byte) []byte) error {
	if err := r.Item("message", laid(m.Info)); err != nil {
		return err
	}
	for _, p := range m.Parts {
		if err := r.Item("part", laid(p)); err != nil {
			return err
		}
	}
	return nil
}

// take gives the puts since the last take.
func (r *Reader) take() []Put {
	puts := r.Puts
	r.Puts = nil
	return puts
}

// Last drops of puts all but the last of each key, in place; those stay in order.
func Last(puts []Put) []Put {
	at := make(map[string]int, len(puts))
	for i, p := range puts {
		at[p.Key] = i
	}
	kept := puts[:0]
	for i, p := range puts {
		if at[p.Key] == i {
			kept = append(kept, p)
		}
	}
	return kept
}

// Limits is where puts must be cut into pieces: how many one may have, its bytes
// with what comes along with each put, and the bytes of one payload.
type Limits struct {
	Ops, Bytes, Payload int
}

// Cut gives puts in pieces within the limits, in order, without those that are too
// large for any.
func Cut(puts []Put, l Limits) (pieces [][]Put, tooLarge []Put) {
	var piece []Put
	size := 0
	for _, p := range puts {
		if len(p.Payload) > l.Payload {
			tooLarge = append(tooLarge, p)
			continue
		}
		cost := len(p.Payload) + len(p.Key) + 64
		if len(piece) > 0 && (len(piece) == l.Ops || size+cost > l.Bytes) {
			pieces = append(pieces, piece)
			piece, size = nil, 0
		}
		piece = append(piece, p)
		size += cost
	}
	if len(piece) > 0 {
		pieces = append(pieces, piece)
	}
	return pieces, tooLarge
}

func malformed(format string, args ...any) *fault.Error { return fault.Malformed.With(format, args...) }
