// What a file of opencode's holds, as batches of puts: an export (JSON), a
// recording of its share traffic (JSONL, one request a line) or the flat array
// that its share server gives out. Reading is pure and complete before anything
// is committed, so a bad line leaves nothing behind.

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// recording is a file's content in the order it is to be appended.
type recording struct {
	External string // opencode's id of the session
	Created  int64  // Unix ms, from the session's own info; 0 if it has none
	Batches  []recordedBatch
	Notices  []string // what was left out, for people
}

// recordedBatch is one sync request, or one message of an export. Its chain is
// a digest of it and of all before it: equal chains mean the same batch at the
// same place of the same session.
type recordedBatch struct {
	Line  int // of the file, from 1
	At    int64
	Puts  []recordedPut
	Chain [32]byte
}

type recordedPut struct {
	Key     string
	Payload []byte
}

// splitLimits is where a batch must be cut in two.
type splitLimits struct {
	ops, bytes, payload int
}

// readRecording reads a whole file. Errors name the line.
func readRecording(r io.Reader, limits splitLimits) (*recording, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	rec := &recording{}
	kind, err := sniff(data)
	switch kind {
	case "export":
		err = rec.readExport(data)
	case "items":
		err = rec.readItems(data)
	case "requests":
		err = rec.readRequests(data)
	}
	if err != nil {
		return nil, err
	}
	if rec.External == "" {
		return nil, fault.Malformed.With("no session is named in the file: it has neither a session's info nor a share request")
	}
	if err := rec.split(limits); err != nil {
		return nil, err
	}
	rec.chain()
	return rec, nil
}

// sniff looks at the first JSON value.
func sniff(data []byte) (kind string, err error) {
	var first json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&first); err != nil {
		// A recording whose first line is spoilt is read as one, so that the error is the line's.
		if line, _, _ := bytes.Cut(bytes.TrimSpace(data), []byte("\n")); bytes.Contains(line, []byte(`"method"`)) {
			return "requests", nil
		}
		return "", fault.Malformed.With("%s: not JSON: %v", whereIn(data, err), err)
	}
	if first[0] == '[' {
		return "items", nil
	}
	var shape struct {
		Info     json.RawMessage `json:"info"`
		Messages json.RawMessage `json:"messages"`
		Method   string          `json:"method"`
		Path     string          `json:"path"`
	}
	if json.Unmarshal(first, &shape) == nil {
		switch {
		case shape.Info != nil && shape.Messages != nil:
			return "export", nil
		case shape.Method != "" && shape.Path != "":
			return "requests", nil
		}
	}
	return "", fault.Malformed.With("line 1: neither an opencode export (an object with info and messages) nor a recording (one request with method and path a line)")
}

// readRequests reads a recording: each sync request is one batch.
func (rec *recording) readRequests(data []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		var req struct {
			At     int64           `json:"at_ms"`
			Method string          `json:"method"`
			Path   string          `json:"path"`
			Body   json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal(text, &req); err != nil {
			return lineError(n, "not a recorded request: %v", err)
		}
		if req.Method != "POST" {
			continue // reads, and DELETE, which ends the share and not the session
		}
		switch {
		case strings.HasSuffix(req.Path, "/sync"):
			var body struct {
				Data []json.RawMessage `json:"data"`
			}
			if err := json.Unmarshal(req.Body, &body); err != nil {
				return lineError(n, "a sync without {data: […]}: %v", err)
			}
			if err := rec.addItems(n, req.At, body.Data); err != nil {
				return err
			}
		case strings.HasSuffix(req.Path, "/share"):
			var body struct {
				SessionID string `json:"sessionID"`
			}
			if err := json.Unmarshal(req.Body, &body); err != nil {
				return lineError(n, "a share request without {sessionID}: %v", err)
			}
			if err := rec.named(n, body.SessionID); err != nil {
				return err
			}
		default:
			rec.notice("line %d: skipped a request to %s", n, req.Path)
		}
	}
	return lines.Err()
}

// readItems reads the flat array of a share's data as one batch.
func (rec *recording) readItems(data []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return fault.Malformed.With("%s: %v", whereIn(data, err), err)
	}
	return rec.addItems(1, 0, items)
}

// readExport reads an export: the session's info is one batch, then every
// message with its parts. Layout between the values belongs to the file and is
// dropped; numbers and strings stay as they are written.
func (rec *recording) readExport(data []byte) error {
	var doc struct {
		Info     json.RawMessage `json:"info"`
		Messages []struct {
			Info  json.RawMessage   `json:"info"`
			Parts []json.RawMessage `json:"parts"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return fault.Malformed.With("%s: %v", whereIn(data, err), err)
	}
	if err := rec.addBatch(1, 0, func(b *recordedBatch) error { return rec.addItem(b, "session", compact(doc.Info)) }); err != nil {
		return err
	}
	for _, m := range doc.Messages {
		err := rec.addBatch(1, 0, func(b *recordedBatch) error {
			if err := rec.addItem(b, "message", compact(m.Info)); err != nil {
				return err
			}
			for _, p := range m.Parts {
				if err := rec.addItem(b, "part", compact(p)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addItems makes a batch of a sync's {type, data} items.
func (rec *recording) addItems(line int, at int64, items []json.RawMessage) error {
	return rec.addBatch(line, at, func(b *recordedBatch) error {
		for i, raw := range items {
			var item struct {
				Type string          `json:"type"`
				Data json.RawMessage `json:"data"`
			}
			if err := json.Unmarshal(raw, &item); err != nil || item.Type == "" || item.Data == nil {
				return lineError(line, "item %d is not {type, data}", i+1)
			}
			if err := rec.addItem(b, item.Type, item.Data); err != nil {
				return err
			}
		}
		return nil
	})
}

func (rec *recording) addBatch(line int, at int64, fill func(*recordedBatch) error) error {
	b := recordedBatch{Line: line, At: at}
	if err := fill(&b); err != nil {
		return err
	}
	if len(b.Puts) > 0 {
		rec.Batches = append(rec.Batches, b)
	}
	return nil
}

// addItem turns one item into puts by opencode's fold keys.
func (rec *recording) addItem(b *recordedBatch, kind string, data []byte) error {
	var id struct {
		ID        string `json:"id"`
		MessageID string `json:"messageID"`
		SessionID string `json:"sessionID"`
		Time      struct {
			Created json.Number `json:"created"`
		} `json:"time"`
	}
	isObject := len(data) > 0 && data[0] == '{'
	if isObject {
		if err := json.Unmarshal(data, &id); err != nil {
			var wrongType *json.UnmarshalTypeError
			if !errors.As(err, &wrongType) || wrongType.Field == "id" || wrongType.Field == "messageID" {
				return lineError(b.Line, "a %s that cannot be read: %v", kind, err)
			}
		}
	}
	put := func(key string) { b.Puts = append(b.Puts, recordedPut{Key: key, Payload: data}) }
	need := func(fields ...string) error {
		if !isObject {
			return lineError(b.Line, "a %s that is not an object", kind)
		}
		for _, v := range fields {
			if v == "" {
				return lineError(b.Line, "a %s without its id", kind)
			}
		}
		return nil
	}
	switch kind {
	case "session":
		if err := need(id.ID); err != nil {
			return err
		}
		if err := rec.named(b.Line, id.ID); err != nil {
			return err
		}
		if ms, err := id.Time.Created.Int64(); err == nil && rec.Created == 0 {
			rec.Created = ms
		}
		put("session")
	case "message":
		if err := need(id.ID); err != nil {
			return err
		}
		put("message/" + id.ID)
	case "part":
		if err := need(id.ID, id.MessageID); err != nil {
			return err
		}
		put("part/" + id.MessageID + "/" + id.ID)
	case "session_diff":
		if !isObject {
			data = wrapDiff(data)
		}
		put("session_diff")
	case "model":
		return rec.addModels(b, data)
	case "messages":
		return rec.addMessages(b, data)
	default:
		rec.notice("line %d: skipped an item of unknown type %q", b.Line, kind)
	}
	return nil
}

// wrapDiff makes the object that a payload must be of opencode's array.
func wrapDiff(array []byte) []byte {
	return append(append([]byte(`{"diff":`), array...), '}')
}

// addModels puts every model of an array, or a single one.
func (rec *recording) addModels(b *recordedBatch, data []byte) error {
	models := []json.RawMessage{data}
	if len(data) > 0 && data[0] == '[' {
		if err := json.Unmarshal(data, &models); err != nil {
			return lineError(b.Line, "models that cannot be read: %v", err)
		}
	}
	for _, m := range models {
		var id struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(m, &id); err != nil || id.ID == "" {
			return lineError(b.Line, "a model without its id")
		}
		b.Puts = append(b.Puts, recordedPut{Key: "model/" + id.ID, Payload: m})
	}
	return nil
}

// addMessages takes the newer form that carries whole messages with their parts.
func (rec *recording) addMessages(b *recordedBatch, data []byte) error {
	var body struct {
		Messages []struct {
			Info  json.RawMessage   `json:"info"`
			Parts []json.RawMessage `json:"parts"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return lineError(b.Line, "messages that cannot be read: %v", err)
	}
	for _, m := range body.Messages {
		if err := rec.addItem(b, "message", m.Info); err != nil {
			return err
		}
		for _, p := range m.Parts {
			if err := rec.addItem(b, "part", p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (rec *recording) named(line int, external string) error {
	if external == "" {
		return nil
	}
	if rec.External != "" && rec.External != external {
		return lineError(line, "a second session (%s after %s): import one session a file", external, rec.External)
	}
	rec.External = external
	return nil
}

func (rec *recording) notice(format string, args ...any) {
	rec.Notices = append(rec.Notices, fmt.Sprintf(format, args...))
}

// split cuts batches that the server would not take. Everything else stays as
// it was recorded.
func (rec *recording) split(limits splitLimits) error {
	var out []recordedBatch
	for _, b := range rec.Batches {
		rest, size := recordedBatch{Line: b.Line, At: b.At}, 0
		for _, p := range b.Puts {
			if len(p.Payload) > limits.payload {
				return fault.TooLarge.With("line %d: %s has %d bytes and a payload may have %d", b.Line, p.Key, len(p.Payload), limits.payload)
			}
			cost := len(p.Payload) + len(p.Key) + 64
			if len(rest.Puts) > 0 && (len(rest.Puts) == limits.ops || size+cost > limits.bytes) {
				out = append(out, rest)
				rest, size = recordedBatch{Line: b.Line, At: b.At}, 0
			}
			rest.Puts = append(rest.Puts, p)
			size += cost
		}
		out = append(out, rest)
	}
	rec.Batches = out
	return nil
}

// chain sets every batch's digest.
func (rec *recording) chain() {
	prev := sha256.Sum256([]byte("mooring import v1\x00" + rec.External))
	for i := range rec.Batches {
		h := sha256.New()
		h.Write(prev[:])
		var n [8]byte
		text := func(s []byte) {
			binary.BigEndian.PutUint64(n[:], uint64(len(s)))
			h.Write(n[:])
			h.Write(s)
		}
		for _, p := range rec.Batches[i].Puts {
			text([]byte(p.Key))
			text(p.Payload)
		}
		h.Sum(prev[:0])
		rec.Batches[i].Chain = prev
	}
}

func compact(v []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return v
	}
	return b.Bytes()
}

func lineError(line int, format string, args ...any) error {
	return fault.Malformed.With("line %d: %s", line, fmt.Sprintf(format, args...))
}

// whereIn names the line of a JSON error in a file of one value.
func whereIn(data []byte, err error) string {
	at := int64(-1)
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset
	case errors.As(err, &wrongType):
		at = wrongType.Offset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		at = int64(len(data)) // cut short
	}
	if at < 0 || at > int64(len(data)) {
		return "the file"
	}
	return fmt.Sprintf("line %d", 1+bytes.Count(data[:at], []byte("\n")))
}
