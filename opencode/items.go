// Items as they are synced, read into puts.

package opencode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/jsonerr"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// Reader gathers the puts of items. The zero value is ready. One goroutine at a
// time may use it.
type Reader struct {
	Session string   // opencode's id of the session; "" until an item names it. Items of another are refused
	Created int64    // Unix ms, from the first session's info that says; else 0
	Puts    []Put    // in the order of the items
	Skipped []string // types of items that are not known here, as often as they came

	items int // that were read by Items
}

// Items reads a sync's items {type, data}. The error is Malformed, names the item,
// and leaves the puts of those before it.
func (r *Reader) Items(items []json.RawMessage) error {
	for i, raw := range items {
		kind, ok := text(raw, "type")
		data, found := ledger.Member(raw, "data")
		if kind == "" || !ok || !found {
			return malformed("item %d is not {type, data}", r.items+i+1)
		}
		if err := r.Item(kind, data); err != nil {
			return err
		}
	}
	r.items += len(items)
	return nil
}

// Item reads one item, whose data is JSON text. One of a type that is not known is
// skipped. The error is Malformed.
func (r *Reader) Item(kind string, data []byte) error {
	id, idOK := text(data, "id")
	message, messageOK := text(data, "messageID")
	need := func(ids ...string) error {
		if !isObject(data) {
			return malformed("a %s that is not an object", kind)
		}
		for _, v := range ids {
			if v == "" {
				return malformed("a %s without its id", kind)
			}
		}
		return nil
	}
	if !idOK || !messageOK {
		return malformed("a %s whose id is not a text", fault.Clip(kind))
	}
	switch kind {
	case "session":
		if err := need(id); err != nil {
			return err
		}
		if err := r.Name(id); err != nil {
			return err
		}
		time, _ := ledger.Member(data, "time")
		created, _ := ledger.Member(time, "created")
		if ms, err := strconv.ParseInt(string(created), 10, 64); err == nil && r.Created == 0 {
			r.Created = ms
		}
		return r.put("session", data)
	case "message":
		if err := need(id); err != nil {
			return err
		}
		return r.put(session.MessageKey(id), data)
	case "part":
		if err := need(id, message); err != nil {
			return err
		}
		return r.put(session.PartKey(message, id), data)
	case "session_diff":
		return r.put("session_diff", wrapDiff(data))
	case "model":
		return r.models(data)
	case "messages":
		return r.messages(data)
	}
	r.Skipped = append(r.Skipped, fault.Clip(kind))
	return nil
}

// text is an object's member that is a string, "" if it has none. Names are what they
// are, unlike with encoding/json, which takes them in any case. It is not ok if the
// member is something else; null is as good as none.
func text(object []byte, name string) (s string, ok bool) {
	raw, found := ledger.Member(object, name)
	if !found || string(raw) == "null" {
		return "", true
	}
	return ledger.Unquote(raw), raw[0] == '"'
}

// list is an object's member that is a list, nil if it has none.
func list(object []byte, name string) (items []json.RawMessage, err error) {
	raw, found := ledger.Member(object, name)
	if found {
		err = json.Unmarshal(raw, &items)
	}
	return items, err
}

func isObject(data []byte) bool { return len(data) > 0 && data[0] == '{' }

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
			return malformed("models that cannot be read: %s", jsonerr.Text(err))
		}
	}
	for _, m := range models {
		id, ok := text(m, "id")
		if id == "" || !ok {
			return malformed("a model without its id")
		}
		if err := r.put(modelKey(id), m); err != nil {
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
	external, ok := text(data, "sessionID")
	if !ok {
		return malformed("messages whose session's id is not a text")
	}
	if err := r.Name(external); err != nil {
		return err
	}
	messages, err := list(data, "messages")
	if err != nil {
		return malformed("messages that cannot be read: %s", jsonerr.Text(err))
	}
	for _, m := range messages {
		if err := r.message(m, func(v []byte) []byte { return v }); err != nil {
			return err
		}
	}
	return nil
}

// message puts a message {info, parts}, of that form or of an export, and its parts,
// each as laid makes it.
func (r *Reader) message(m []byte, laid func([]byte) []byte) error {
	info, _ := ledger.Member(m, "info")
	if err := r.Item("message", laid(info)); err != nil {
		return err
	}
	parts, err := list(m, "parts")
	if err != nil {
		return malformed("parts that cannot be read: %s", jsonerr.Text(err))
	}
	for _, p := range parts {
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

// Last keeps the last of each key's puts, in place: where the first one stood, since that is
// where a key's place in its session begins.
func Last(puts []Put) []Put {
	at := make(map[string]int, len(puts))
	kept := puts[:0]
	for _, p := range puts {
		if i, repeated := at[p.Key]; repeated {
			kept[i] = p
			continue
		}
		at[p.Key] = len(kept)
		kept = append(kept, p)
	}
	return kept
}

// Limits is where puts must be cut into pieces: how many one may have, its bytes
// with what comes along with each put, and the bytes of one payload.
type Limits struct {
	Ops, Bytes, Payload int

	// SkipTooLarge has ReadRecording leave out, with a notice, values with more bytes
	// than a payload may have, which are TooLarge else.
	SkipTooLarge bool
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
