// Parsing of synced items into puts.

package opencode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/jsonerr"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Reader collects the puts of items. The zero value is ready. It is for one goroutine at a time.
type Reader struct {
	Session string   // opencode's id of the session; "" until an item names it. Items of another session are refused
	Created int64    // Unix ms, from the first session's info that has it; else 0
	Parent  string   // opencode's id of the session's parent, from its info; "" if it has none
	Puts    []Put    // in the order of the items
	Skipped []string // unknown types of items, one element per item

	items int // items read by Items
}

// Items parses a sync's items {type, data}. The error is Malformed and names the item; the puts
// of the items before it are kept.
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

// Item parses one item, whose data is JSON text. An item of unknown type is skipped. The error is
// Malformed.
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
		if parent, ok := text(data, "parentID"); ok && parent != "" {
			r.Parent = parent
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

// text returns an object's string member, "" if absent. Unlike encoding/json it matches names
// case-sensitively. ok is false if the member is of another type; null is the same as absent.
func text(object []byte, name string) (s string, ok bool) {
	raw, found := ledger.Member(object, name)
	if !found || string(raw) == "null" {
		return "", true
	}
	return ledger.Unquote(raw), raw[0] == '"'
}

// list returns an object's array member, nil if absent.
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

// own puts a value of an own kind.
func (r *Reader) own(p Put) error {
	if k, err := session.ParseKey(p.Key); err == nil && !k.Own() {
		return malformed("the state has %s, which is not a key of an own kind", p.Key)
	}
	return r.put(p.Key, p.Payload)
}

// Name sets the session that the items are of; "" has no effect.
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

// modelKey returns a model's key. A name that is not valid in a key is replaced by its digest;
// the value contains it whole.
func modelKey(id string) string {
	key := "model/" + id
	if _, err := session.ParseKey(key); err != nil {
		sum := sha256.Sum256([]byte(id))
		key = "model/sha256:" + hex.EncodeToString(sum[:])
	}
	return key
}

// messages parses the newer form, which has whole messages with their parts.
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

// message puts a message {info, parts}, of that form or of an export, and its parts, each after
// laid.
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

// take returns the puts since the last take.
func (r *Reader) take() []Put {
	puts := r.Puts
	r.Puts = nil
	return puts
}

// Last keeps the last of each key's puts, in place, at the position of the first, since that is
// where a key's position in its session begins.
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

// Limits bound the pieces into which puts are cut: the number of puts, their bytes including
// overhead, and the bytes of one payload.
type Limits struct {
	Ops, Bytes, Payload int

	// SkipTooLarge makes ReadRecording skip values larger than a payload may be, with a notice,
	// instead of failing with TooLarge.
	SkipTooLarge bool
}

// Cut returns puts in pieces within the limits, in order, and separately those too large for any.
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

// Sync collects the items of a sync into pieces: each is as large as the limits let a batch be, and is applied whole.
type Sync struct {
	limits Limits
	reader Reader
	items  []json.RawMessage // of the piece being collected
	bytes  int
}

// NewSync returns an empty sync of a session that opencode calls external.
func NewSync(external string, limits Limits) *Sync {
	return &Sync{limits: limits, reader: Reader{Session: external}}
}

// Add adds an item, and reports whether the piece is full.
func (s *Sync) Add(item json.RawMessage) (full bool) {
	s.items, s.bytes = append(s.items, item), s.bytes+len(item)
	return len(s.items) >= s.limits.Ops || s.bytes >= s.limits.Bytes
}

// Take returns the piece that was collected, in parts within the limits, and the puts that are too large for any. The error is Malformed.
func (s *Sync) Take() (pieces [][]Put, tooLarge []Put, err error) {
	if err := s.reader.Items(s.items); err != nil {
		return nil, nil, err
	}
	puts := Last(s.reader.take())
	s.items, s.bytes, s.reader.Skipped = nil, 0, nil
	pieces, tooLarge = Cut(puts, s.limits)
	return pieces, tooLarge, nil
}

// TooLarge says what is left out of a sync.
func (l Limits) TooLarge(bytes int) string {
	return fmt.Sprintf("it has %d bytes, the limit is %d", bytes, l.Payload)
}

func malformed(format string, args ...any) *fault.Error { return fault.Malformed.With(format, args...) }
