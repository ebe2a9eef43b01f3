// Files of opencode's, as batches of puts: an export (JSON), a recording of its share traffic
// (JSONL, one request a line) or the flat array that its share server returns. Parsing is pure
// and complete before anything is committed, so a bad line has no effect.

package opencode

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/jsonerr"
	"github.com/mooring-rpc/mooring/internal/jsonlines"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Recording is a file's content in the order in which it is to be appended.
type Recording struct {
	External string // opencode's id of the session
	Created  int64  // Unix ms, from the session's own info; 0 if it has none
	Parent   string // opencode's id of the session's parent; "" if it has none
	ByLog    bool   // the session is in the order of its batches, not by time of creation
	Batches  []Batch
	Children []Child // of an export

	Origin     Origin     // what an export says that the session was forked from
	Compaction Compaction // what an export says of it, else what opencode's own messages say

	Notices []string // values skipped or repeated, for people

	reader Reader
}

// Origin is what a session was forked from. The zero value is nothing.
type Origin struct {
	Session string
	Cursor  uint64
	Message string // id of the last message that was copied; "" for all
}

// Child is a child of an export's session.
type Child struct {
	Part string // key of the message or part that started it; "" if none is named
	*Recording
}

// Batch is one sync request, or one message of an export. Its chain is a digest of it and of all
// before it: equal chains mean the same batch at the same position of the same session.
type Batch struct {
	Line  int // in the file, from 1
	At    int64
	Puts  []Put
	Chain [32]byte
}

// ReadRecording reads a whole file, a recording line by line. Batches beyond limits are cut into
// pieces; everything else stays as recorded. The error is Malformed or TooLarge and names the
// line, or is r's.
func ReadRecording(r io.Reader, limits Limits) (*Recording, error) {
	return readRecording(r, limits, jsonlines.MaxFile, jsonlines.MaxLine)
}

func readRecording(r io.Reader, limits Limits, file, line int) (*Recording, error) {
	rec := &Recording{}
	if err := rec.read(jsonlines.NewReader(r, file, line), limits); err != nil {
		return nil, err
	}
	return rec, rec.finish(limits)
}

// finish completes a recording that was read.
func (rec *Recording) finish(limits Limits) error {
	if rec.reader.Session == "" {
		return malformed("no session is named in the file: it has neither a session's info nor a share request")
	}
	rec.External, rec.Created, rec.Parent = rec.reader.Session, rec.reader.Created, rec.reader.Parent
	return rec.Complete(limits)
}

// Complete closes a recording and finds its compaction, if none is set. The error is TooLarge and names the line.
func (rec *Recording) Complete(limits Limits) error {
	if err := rec.Close(limits); err != nil {
		return err
	}
	if rec.Compaction == (Compaction{}) {
		order := session.ByTime
		if rec.ByLog {
			order = session.ByLog
		}
		rec.Compaction = lastCompaction(order, rec.Batches)
	}
	return nil
}

// ReadAll reads a whole file of another format, within the bound of this package's.
func ReadAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(jsonlines.NewReader(r, jsonlines.MaxFile, jsonlines.MaxLine).Rest())
	if err != nil {
		return nil, reading(err)
	}
	return data, nil
}

// read parses the lines as a recording, an export or a flat array.
func (rec *Recording) read(lines *jsonlines.Reader, limits Limits) error {
	first, err := lines.First()
	if err == nil && isRequest(first) {
		return rec.readRequests(lines, first)
	}
	if err != nil && !errors.Is(err, jsonlines.ErrLongLine) {
		return reading(err)
	}
	whole := bytes.NewBuffer(slices.Concat(bytes.Repeat([]byte("\n"), lines.Line()-1), first, []byte("\n")))
	if _, err := whole.ReadFrom(lines.Rest()); err != nil {
		return reading(err)
	}
	data := whole.Bytes()
	kind, err := sniff(data)
	switch kind {
	case "export":
		err = rec.readExport(data, limits)
		rec.noteRepeated()
	case "items":
		err = rec.readItems(data)
		rec.noteRepeated()
	case "requests":
		err = rec.request(lines.Line(), first)
	}
	return err
}

// Add appends a batch of a recording that is not opencode's own, and is read elsewhere: line is that of the file. The error
// is BadKey.
func (rec *Recording) Add(line int, at int64, puts []Put) error {
	for _, p := range puts {
		if _, err := session.ParseKey(p.Key); err != nil {
			return err
		}
	}
	if len(puts) > 0 {
		rec.Batches = append(rec.Batches, Batch{Line: line, At: at, Puts: puts})
	}
	return nil
}

// Close cuts batches beyond the limits into pieces, and sets every batch's chain. The error is TooLarge and names the line.
func (rec *Recording) Close(limits Limits) error {
	if err := rec.split(limits); err != nil {
		return err
	}
	rec.chain()
	return nil
}

// Rewrite puts what f returns for each payload in its place, in the children as well, and closes the recording anew. The
// error is TooLarge and names the line.
func (rec *Recording) Rewrite(limits Limits, f func(payload []byte) []byte) error {
	for i := range rec.Batches {
		for j, p := range rec.Batches[i].Puts {
			rec.Batches[i].Puts[j].Payload = f(p.Payload)
		}
	}
	for _, c := range rec.Children {
		if err := c.Rewrite(limits, f); err != nil {
			return err
		}
	}
	return rec.Close(limits)
}

// Payloads calls f for each payload of the recording and its children.
func (rec *Recording) Payloads(f func(payload []byte)) {
	for _, b := range rec.Batches {
		for _, p := range b.Puts {
			f(p.Payload)
		}
	}
	for _, c := range rec.Children {
		c.Payloads(f)
	}
}

// reading adds context to the reader's error; faults have their own.
func reading(err error) error {
	if fault.CodeOf(err) != fault.Internal {
		return err
	}
	return fmt.Errorf("read the file: %w", err)
}

// isRequest reports whether a line is a whole request of a recording.
func isRequest(line []byte) bool {
	if !json.Valid(line) {
		return false
	}
	method, _ := text(line, "method")
	path, _ := text(line, "path")
	return method != "" && path != ""
}

// sniff determines the kind of a file that is not a recording by its first JSON value.
func sniff(data []byte) (kind string, err error) {
	var first json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&first); err != nil {
		// In a recording whose first line is corrupt the error is about that line.
		if line, _, _ := bytes.Cut(bytes.TrimSpace(data), []byte("\n")); bytes.Contains(line, []byte(`"method"`)) {
			return "requests", nil
		}
		return "", fault.Malformed.With("%s: not JSON: %s", whereIn(data, err), jsonerr.Text(err))
	}
	if first[0] == '[' {
		return "items", nil
	}
	_, info := ledger.Member(first, "info")
	_, messages := ledger.Member(first, "messages")
	if info && messages {
		return "export", nil
	}
	return "", fault.Malformed.With("line 1: neither an opencode export (an object with info and messages) nor a recording (one request with method and path a line) nor a transcript of Claude Code or Codex")
}

// readRequests parses a recording, whose first line was read: each sync request is one batch.
func (rec *Recording) readRequests(lines *jsonlines.Reader, line []byte) error {
	for {
		if len(line) > 0 {
			if err := rec.request(lines.Line(), line); err != nil {
				return err
			}
		}
		var err error
		line, err = lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, jsonlines.ErrLongLine):
			return lines.TooLong()
		case err != nil:
			return reading(err)
		}
	}
}

// request parses one line of a recording.
func (rec *Recording) request(n int, line []byte) error {
	var req struct {
		At     int64           `json:"at_ms"`
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Body   json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(line, &req); err != nil {
		return lineError(n, "not a recorded request: %s", jsonerr.Text(err))
	}
	if req.Method != "POST" {
		return nil // reads, and DELETE, which ends the share and not the session
	}
	switch {
	case strings.HasSuffix(req.Path, "/sync"):
		var body struct {
			Data []json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(req.Body, &body); err != nil {
			return lineError(n, "a sync without {data: […]}: %s", jsonerr.Text(err))
		}
		return rec.addItems(n, req.At, body.Data)
	case strings.HasSuffix(req.Path, "/share"):
		var body struct {
			SessionID string `json:"sessionID"`
		}
		if err := json.Unmarshal(req.Body, &body); err != nil {
			return lineError(n, "a share request without {sessionID}: %s", jsonerr.Text(err))
		}
		if err := rec.reader.Name(body.SessionID); err != nil {
			return onLine(n, err)
		}
	default:
		rec.notice("line %d: skipped a request to %s", n, fault.Clip(req.Path))
	}
	return nil
}

// readItems parses the flat array of a share's data as one batch.
func (rec *Recording) readItems(data []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return NotJSON(data, err)
	}
	return rec.addItems(1, 0, items)
}

// readExport parses an export: the session's info is one batch, then every message with its
// parts, then the values of own kinds. White space between values is dropped, but not within those of
// own kinds; numbers and strings stay as written.
func (rec *Recording) readExport(data []byte, limits Limits) error {
	var doc json.RawMessage
	if err := json.Unmarshal(data, &doc); err != nil {
		return NotJSON(data, err)
	}
	info, _ := ledger.Member(doc, "info")
	messages, err := list(doc, "messages")
	if err != nil {
		return malformed("messages that cannot be read: %s", jsonerr.Text(err))
	}
	if err := rec.addBatch(1, 0, func(r *Reader) error { return r.Item("session", compact(info)) }); err != nil {
		return err
	}
	for _, m := range messages {
		if err := rec.addBatch(1, 0, func(r *Reader) error { return r.message(m, compact) }); err != nil {
			return err
		}
	}
	if err := rec.readState(doc); err != nil {
		return err
	}
	if err := rec.readCompaction(doc); err != nil {
		return err
	}
	if err := rec.readOrigin(doc); err != nil {
		return err
	}
	return rec.readChildren(doc, limits)
}

// readChildren parses the children of an export: exports, each with the key of what started it.
func (rec *Recording) readChildren(doc []byte, limits Limits) error {
	if _, found := ledger.Member(doc, "children"); !found {
		return nil
	}
	children, err := list(doc, "children")
	if err != nil {
		return malformed("children that cannot be read: %s", jsonerr.Text(err))
	}
	for _, one := range children {
		child := Child{Recording: &Recording{}}
		child.Part, _ = text(one, "part")
		if k, err := session.ParseKey(child.Part); child.Part != "" && (err != nil || k.Kind != session.KeyMessage && k.Kind != session.KeyPart) {
			return malformed("a child whose part is not the key of a message or part: %q", fault.Clip(child.Part))
		}
		if err := child.readExport(one, limits); err != nil {
			return err
		}
		child.noteRepeated()
		if err := child.finish(limits); err != nil {
			return err
		}
		rec.Children = append(rec.Children, child)
		rec.Notices = append(rec.Notices, child.Notices...)
	}
	return nil
}

// readState parses an export's values of own kinds.
func (rec *Recording) readState(doc []byte) error {
	state, found := ledger.Member(doc, "state")
	if !found {
		return nil
	}
	if !isObject(state) {
		return malformed("a state that is not an object of values by key")
	}
	return rec.addBatch(1, 0, func(r *Reader) (err error) {
		gjson.ParseBytes(state).ForEach(func(key, value gjson.Result) bool {
			err = r.own(Put{Key: key.String(), Payload: []byte(value.Raw)})
			return err == nil
		})
		return err
	})
}

// readCompaction parses up to where an export's session is compacted.
func (rec *Recording) readCompaction(doc []byte) error {
	compacted, found := ledger.Member(doc, "compacted")
	if !found {
		return nil
	}
	upto, _ := text(compacted, "upto")
	summary, _ := text(compacted, "summary")
	for _, key := range []string{upto, summary} {
		if k, err := session.ParseKey(key); err != nil || k.Kind != session.KeyMessage {
			return malformed("a compaction whose upto or summary is not the key of a message: %q", fault.Clip(key))
		}
	}
	rec.Compaction = Compaction{upto, summary}
	return nil
}

// readOrigin parses what an export's session was forked from.
func (rec *Recording) readOrigin(doc []byte) error {
	origin, found := ledger.Member(doc, "origin")
	if !found {
		return nil
	}
	o := Origin{}
	o.Session, _ = text(origin, "session")
	o.Message, _ = text(origin, "message")
	cursor, _ := ledger.Member(origin, "cursor")
	var err error
	o.Cursor, err = strconv.ParseUint(string(cursor), 10, 64)
	if k, bad := session.ParseKey(session.MessageKey(o.Message)); err != nil || !capability.IsSession(o.Session) || o.Message != "" && (bad != nil || k.Kind != session.KeyMessage) {
		return malformed("an origin that is not a session's id, a cursor and, if it is named, a message's id")
	}
	rec.Origin = o
	return nil
}

// addItems appends a batch of a sync's {type, data} items.
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

// noteRepeated adds a notice for keys that occur more than once, with different values, in a file
// that is a state: the last value is kept.
func (rec *Recording) noteRepeated() {
	last, noted := map[string][]byte{}, map[string]bool{}
	for _, b := range rec.Batches {
		for _, p := range b.Puts {
			if was, is := last[p.Key]; is && !noted[p.Key] && !bytes.Equal(was, p.Payload) {
				noted[p.Key] = true
				rec.notice("%s stands more than once in the file: the last one is kept", p.Key)
			}
			last[p.Key] = p.Payload
		}
	}
}

func (rec *Recording) notice(format string, args ...any) {
	rec.Notices = append(rec.Notices, fmt.Sprintf(format, args...))
}

// split cuts batches that exceed the server's limits.
func (rec *Recording) split(limits Limits) error {
	var out []Batch
	for _, b := range rec.Batches {
		pieces, tooLarge := Cut(b.Puts, limits)
		for _, p := range tooLarge {
			if !limits.SkipTooLarge {
				return fault.TooLarge.With("line %d: %s has %d bytes and a payload may have %d", b.Line, p.Key, len(p.Payload), limits.Payload)
			}
			rec.notice("line %d: left out %s, which has %d bytes where a payload may have %d", b.Line, p.Key, len(p.Payload), limits.Payload)
		}
		for _, puts := range pieces {
			out = append(out, Batch{Line: b.Line, At: b.At, Puts: puts})
		}
	}
	rec.Batches = out
	return nil
}

// chain sets every batch's chain.
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

// CompactionChain is the chain of the compaction, behind all batches.
func (rec *Recording) CompactionChain() [32]byte {
	last := [32]byte{}
	if n := len(rec.Batches); n > 0 {
		last = rec.Batches[n-1].Chain
	}
	return sha256.Sum256(fmt.Appendf(last[:], "mooring compaction v1\x00%s\x00%s", rec.Compaction.Upto, rec.Compaction.Summary))
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

// onLine adds the line to an item's error.
func onLine(line int, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return fmt.Errorf("line %d: %w", line, err)
	}
	return lineError(line, "%s", f.Message)
}

// NotJSON returns what an error of encoding/json says of a file of one value, and the line.
func NotJSON(data []byte, err error) *fault.Error {
	return malformed("%s: %s", whereIn(data, err), jsonerr.Text(err))
}

// whereIn returns the line of a JSON error in a file of one value.
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
		at = int64(len(data)) // truncated
	}
	if at < 0 || at > int64(len(data)) {
		return "the file"
	}
	return fmt.Sprintf("line %d", 1+bytes.Count(data[:at], []byte("\n")))
}
