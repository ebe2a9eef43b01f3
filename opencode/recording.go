// What a file of opencode's holds, as batches of puts: an export (JSON), a
// recording of its share traffic (JSONL, one request a line) or the flat array
// that its share server gives out. Reading is pure and complete before anything
// is committed, so a bad line leaves nothing behind.

package opencode

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
	"github.com/mooring-rpc/mooring/ledger"
)

// Recording is a file's content in the order it is to be appended.
type Recording struct {
	External string // opencode's id of the session
	Created  int64  // Unix ms, from the session's own info; 0 if it has none
	Batches  []Batch
	Notices  []string // what was left out, for people

	reader Reader
}

// Batch is one sync request, or one message of an export. Its chain is a digest of
// it and of all before it: equal chains mean the same batch at the same place of
// the same session.
type Batch struct {
	Line  int // of the file, from 1
	At    int64
	Puts  []Put
	Chain [32]byte
}

// ReadRecording reads a whole file. Batches that limits do not allow are cut into
// pieces; everything else stays as it was recorded. What is wrong with the file is
// Malformed or TooLarge, and says where.
func ReadRecording(r io.Reader, limits Limits) (*Recording, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	rec := &Recording{}
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
	if rec.reader.Session == "" {
		return nil, malformed("no session is named in the file: it has neither a session's info nor a share request")
	}
	rec.External, rec.Created = rec.reader.Session, rec.reader.Created
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
	_, info := ledger.Member(first, "info")
	_, messages := ledger.Member(first, "messages")
	method, _ := text(first, "method")
	path, _ := text(first, "path")
	switch {
	case info && messages:
		return "export", nil
	case method != "" && path != "":
		return "requests", nil
	}
	return "", fault.Malformed.With("line 1: neither an opencode export (an object with info and messages) nor a recording (one request with method and path a line)")
}

// readRequests reads a recording: each sync request is one batch.
func (rec *Recording) readRequests(data []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var req struct {
			At     int64           `json:"at_ms"`
			Method string          `json:"method"`
			Path   string          `json:"path"`
			Body   json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal(line, &req); err != nil {
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
			if err := rec.reader.Name(body.SessionID); err != nil {
				return onLine(n, err)
			}
		default:
			rec.notice("line %d: skipped a request to %s", n, req.Path)
		}
	}
	return lines.Err()
}

// readItems reads the flat array of a share's data as one batch.
func (rec *Recording) readItems(data []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return fault.Malformed.With("%s: %v", whereIn(data, err), err)
	}
	return rec.addItems(1, 0, items)
}

// readExport reads an export: the session's info is one batch, then every
// message with its parts. Layout between the values belongs to the file and is
// dropped; numbers and strings stay as they are written.
func (rec *Recording) readExport(data []byte) error {
	var doc json.RawMessage
	if err := json.Unmarshal(data, &doc); err != nil {
		return fault.Malformed.With("%s: %v", whereIn(data, err), err)
	}
	info, _ := ledger.Member(doc, "info")
	messages, err := list(doc, "messages")
	if err != nil {
		return malformed("messages that cannot be read: %v", err)
	}
	if err := rec.addBatch(1, 0, func(r *Reader) error { return r.Item("session", compact(info)) }); err != nil {
		return err
	}
	for _, m := range messages {
		if err := rec.addBatch(1, 0, func(r *Reader) error { return r.message(m, compact) }); err != nil {
			return err
		}
	}
	return nil
}

// addItems makes a batch of a sync's {type, data} items.
func (rec *Recording) addItems(line int, at int64, items []json.RawMessage) error {
	return rec.addBatch(line, at, func(r *Reader) error { return r.Items(items) })
}

func (rec *Recording) addBatch(line int, at int64, fill func(*Reader) error) error {
	if err := fill(&rec.reader); err != nil {
		return onLine(line, err)
	}
	for _, kind := range rec.reader.Skipped {
		rec.notice("line %d: skipped an item of unknown type %q", line, kind)
	}
	rec.reader.Skipped = nil
	if puts := rec.reader.take(); len(puts) > 0 {
		rec.Batches = append(rec.Batches, Batch{Line: line, At: at, Puts: puts})
	}
	return nil
}

func (rec *Recording) notice(format string, args ...any) {
	rec.Notices = append(rec.Notices, fmt.Sprintf(format, args...))
}

// split cuts batches that the server would not take.
func (rec *Recording) split(limits Limits) error {
	var out []Batch
	for _, b := range rec.Batches {
		pieces, tooLarge := Cut(b.Puts, limits)
		if len(tooLarge) > 0 {
			return fault.TooLarge.With("line %d: %s has %d bytes and a payload may have %d", b.Line, tooLarge[0].Key, len(tooLarge[0].Payload), limits.Payload)
		}
		for _, puts := range pieces {
			out = append(out, Batch{Line: b.Line, At: b.At, Puts: puts})
		}
	}
	rec.Batches = out
	return nil
}

// chain sets every batch's digest.
func (rec *Recording) chain() {
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
	return malformed("line %d: %s", line, fmt.Sprintf(format, args...))
}

// onLine names the line of an item's error.
func onLine(line int, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return fmt.Errorf("line %d: %w", line, err)
	}
	return lineError(line, "%s", f.Message)
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
