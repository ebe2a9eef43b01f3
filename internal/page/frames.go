package page

// Changes of a session while its page is open.

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Frame is one server-sent event: its name, and its data, JSON without line feeds.
//
//	block  {"key","html"}            a block, new or replaced whole; a message's is without its parts
//	text   {"key","offset","text"}   appended to a part's text, at a byte offset
//	gone   {"key"}                   a block was removed
//	turn   {"message","status","html"}
//	info   {"title","html"}          the session's own
//	compacted {"html"}               up to where the session is compacted
//	reload {}                        the page is to be loaded again
type Frame struct {
	Event string
	Data  []byte
}

// Placing returns the position of the key of an event's value i, for a page that does not have the
// key: session.Order.NewOrd for a reader who is shown all events.
type Placing func(e *session.Event, i int, key string, payload []byte) session.Ord

// Frames returns the changes of an event on the page: any number, in the order in which they are to
// be applied.
func Frames(e *session.Event, place Placing) []Frame {
	if e.Hidden {
		return nil
	}
	if id, state, ok := session.RequestOf(e.Key); ok && (state || e.Method != session.MethodPurge) { // its card is of two values
		return []Frame{changed(session.RequestKey(id))}
	}
	switch e.Method {
	case session.MethodPut:
		return []Frame{put(e, place(e, 0, e.Key, e.Payload), e.Key, e.Schema, e.Payload)}
	case session.MethodBegin:
		return []Frame{put(e, place(e, 0, e.Key, e.Payload), e.Key, e.Schema, e.Payload), turnFrame(e, session.Streaming.String())}
	case session.MethodRemove:
		return []Frame{gone(e.Key)}
	case session.MethodPurge:
		if fields.Read(e.Payload).At("left").Exists() { // of a message in a session that was ever reverted: its parts may be shown again
			return []Frame{gone(e.Key), frame("reload", struct{}{})}
		}
		return []Frame{gone(e.Key)}
	case session.MethodPatch, session.MethodAdd, // whose payload is the change alone
		session.MethodClaim, session.MethodRelease, session.MethodLapse:
		return []Frame{changed(e.Key)}
	case session.MethodAppendText:
		if e.Payload == nil { // purged
			return nil
		}
		p := fields.Read(e.Payload)
		return []Frame{frame("text", struct {
			Key    string `json:"key"`
			Offset uint64 `json:"offset"`
			Text   string `json:"text"`
		}{e.Key, p.At("offset").Uint(), p.At("text").Text()})}
	case session.MethodFinalize:
		frames := entries(e, place)
		if status := fields.Read(e.Payload).At("status").Text(); status != "" {
			frames = append(frames, turnFrame(e, status))
		}
		return frames
	case session.MethodFork:
		return entries(e, place)
	case session.MethodInterrupted:
		return []Frame{turnFrame(e, session.Interrupted.String())}
	case session.MethodResumed:
		return []Frame{turnFrame(e, session.Streaming.String())}
	case session.MethodCompact:
		p := fields.Read(e.Payload)
		c := session.Compaction{Upto: p.At("upto").Text(), Summary: p.At("summary").Text(), At: e.At}
		if !c.InForce() { // a ref of a part of the session is not shown where
			return nil
		}
		var o markup.Out
		compacted(&o, &c)
		return []Frame{frame("compacted", struct {
			HTML string `json:"html"`
		}{string(o.Bytes())})}
	case session.MethodRevert, session.MethodUnrevert, session.MethodSettle: // what is hidden, or shown again, is not in the event
		return []Frame{frame("reload", struct{}{})}
	}
	return nil // create, share, revoke and similar events change nothing on the page
}

// changed says that a block is to be loaded again.
func changed(key string) Frame {
	return frame("changed", struct {
		Key string `json:"key"`
	}{key})
}

// Puts returns the keys that an event puts on the page.
func Puts(e *session.Event) (keys []string) {
	if _, _, ok := session.RequestOf(e.Key); ok {
		return nil
	}
	switch e.Method {
	case session.MethodPut, session.MethodBegin:
		return []string{e.Key}
	case session.MethodFinalize, session.MethodFork:
		fields.Read(e.Payload).At("entries").ForEach(func(_, v gjson.Result) bool {
			keys = append(keys, fields.Of(v).At("key").Text())
			return true
		})
	}
	return keys
}

// entries returns the frames of the puts within another event's payload.
func entries(e *session.Event, place Placing) []Frame {
	var frames []Frame
	fields.Read(e.Payload).At("entries").ForEach(func(_, v gjson.Result) bool {
		entry := fields.Of(v)
		key, payload := entry.At("key").Text(), []byte(entry.At("payload").Text())
		frames = append(frames, put(e, place(e, len(frames), key, payload), key, uint32(entry.At("schema_version").Uint()), payload))
		return true
	})
	return frames
}

// put returns the change by a key's new value; ord is its position if the page does not have the
// key. A value without a payload was purged.
func put(e *session.Event, ord session.Ord, key string, schema uint32, payload []byte) Frame {
	if len(payload) == 0 {
		return gone(key)
	}
	entry := &session.Entry{Session: e.Session, Key: key, Cursor: e.Cursor, Ord: ord, Schema: schema, Payload: payload}
	html := string(Block(entry, session.Change{Ref: e.Ref, Actor: e.Actor, At: e.At}, nil))
	if key == "session" {
		return infoFrame(titleOf(entry), html)
	}
	return frame("block", struct {
		Key  string `json:"key"`
		HTML string `json:"html"`
	}{key, html})
}

// gone removes a block. The session's info stays, empty.
func gone(key string) Frame {
	if key == "session" {
		var o markup.Out
		info(&o, nil)
		return infoFrame(untitled, string(o.Bytes()))
	}
	return frame("gone", struct {
		Key string `json:"key"`
	}{key})
}

func infoFrame(title, html string) Frame {
	return frame("info", struct {
		Title string `json:"title"`
		HTML  string `json:"html"`
	}{title, html})
}

func turnFrame(e *session.Event, status string) Frame {
	var o markup.Out
	turnState(&o, status)
	return frame("turn", struct {
		Message string `json:"message"`
		Status  string `json:"status"`
		HTML    string `json:"html"`
	}{strings.TrimPrefix(e.Key, session.MessageKey("")), status, string(o.Bytes())})
}

// frame encodes v, a struct of strings and numbers.
func frame(event string, v any) Frame {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("page: encode a frame: " + err.Error())
	}
	return Frame{Event: event, Data: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}
