package uimessage

// An array of UIMessages as what is to be put into a session.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Options say how an array is read.
type Options struct {
	Limits   opencode.Limits
	External string // the session's external id; "" for that of the session which was exported, or else one made of the first message
}

// Recognises reports whether a file that begins with head is an array of messages, by the first members of the first: a session's
// items as opencode shares them, an array as well, have type and data.
func Recognises(head []byte) bool {
	head, isList := bytes.CutPrefix(bytes.TrimSpace(head), []byte("["))
	head = bytes.TrimSpace(head)
	if !isList || !isObject(head) {
		return false
	}
	for i := 0; i < len(head) && head[i] != '}'; {
		from, to, value, ok := ledger.NextName(head, i)
		if !ok {
			return false
		}
		switch ledger.Unquote(head[from:to]) {
		case "id", "role", "parts":
			return true
		case "type", "data":
			return false
		}
		_, i = ledger.SkipValue(head, value)
	}
	return false
}

// Read reads a whole file. The error is Malformed or TooLarge and names the message, counted from 1, or is r's.
func Read(r io.Reader, o Options) (*opencode.Recording, error) {
	data, err := opencode.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if !ledger.IsJSON(data) {
		var doc json.RawMessage
		return nil, opencode.NotJSON(data, json.Unmarshal(data, &doc))
	}
	list, ok := elements(data)
	switch {
	case !ok:
		return nil, malformed("not an array of UIMessages")
	case len(list) == 0:
		return nil, malformed("an array without messages: there is no session to make")
	}
	rd := &reading{limits: o.Limits, rec: &opencode.Recording{External: o.External, ByLog: true}, taken: map[string]bool{}, made: map[string]int{}}
	line := 1
	for i, text := range list {
		begins := bytes.Index(data, text[:1]) // between two are a comma and white space alone
		line += bytes.Count(data[:begins], []byte("\n"))
		rd.n = i + 1
		if err := rd.message(list, line, text); err != nil {
			return nil, in(fmt.Sprintf("message %d", rd.n), err)
		}
		line += bytes.Count(text, []byte("\n"))
		data = data[begins+len(text):]
	}
	return rd.rec, rd.rec.Complete(o.Limits)
}

// in adds to an error what it is about.
func in(what string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return f.Code.With("%s: %s", what, f.Message)
}

// reading is the state of a Read.
type reading struct {
	limits opencode.Limits
	rec    *opencode.Recording
	reader opencode.Reader // of the message that is read
	n      int             // number of that message
	taken  map[string]bool // ids of messages
	made   map[string]int  // how many ids were made of a text
}

// message reads a message of the list, which begins on a line.
func (rd *reading) message(list [][]byte, line int, text []byte) error {
	if !utf8.Valid(text) {
		return malformed("it is not UTF-8")
	}
	u, _ := parse(compact(text))
	if err := checkMessage(u); err != nil {
		return err
	}
	parts, _ := elements(u.get("parts"))
	for j, text := range parts {
		p, _ := parse(text)
		if err := checkPart(p); err != nil {
			return in(fmt.Sprintf("part %d", j+1), err)
		}
	}
	if len(parts) == 0 && u.text("role") != "assistant" {
		return malformed("it has no part, and only one of an assistant may have none")
	}
	before := 0
	if rd.n == 1 {
		var err error
		if before, err = rd.begin(list, parts); err != nil {
			return err
		}
		parts = parts[before:]
		rd.next(line)
	}
	if len(parts) == 1 && before == 0 && equal(parts[0], []byte(emptyPart)) && u.text("role") != "assistant" {
		parts = nil
	}
	id := rd.messageID(u.text("id"))
	var info []byte
	if id == u.text("id") {
		info = decodeOwnHead(id, u)
	}
	exported := info != nil
	if !exported {
		info = rd.foreignHead(id, u)
	}
	if err := rd.put("message", info, ""); err != nil {
		return err
	}
	_, of := messageHead(id, info)
	if err := rd.parts(of, id, exported, before, parts); err != nil {
		return err
	}
	rd.next(line)
	return nil
}

// begin reads what the first message has of the session, which is its first n parts, and names the session.
func (rd *reading) begin(list, parts [][]byte) (n int, err error) {
	if len(parts) > 0 {
		p, _ := parse(parts[0])
		data, _ := p.object("data")
		info, diff := data.get("info"), data.get("diff")
		about, _ := parse(info)
		if about.text("id") != "" && equal(sessionData(info, diff), parts[0]) {
			if err = rd.put("session", info, ""); err == nil && diff != nil {
				err = rd.put("session_diff", diff, "")
			}
			if err != nil {
				return 0, err
			}
			n = 1
		}
	}
	was := rd.reader.Session // that was exported
	for i := 0; was == "" && i < len(list); i++ {
		u, _ := parse(list[i])
		mine, _ := inner(u, "metadata")
		was = mine.text("sessionID")
	}
	rd.rec.Created, rd.rec.Parent = rd.reader.Created, rd.reader.Parent
	switch {
	case rd.rec.External != "":
	case was != "":
		rd.rec.External = was
	default:
		rd.rec.External = madeID(string(compact(list[0])), 0)
	}
	rd.reader.Session = ""
	if was == "" {
		return n, rd.put("session", titled(rd.rec.External, list), "")
	}
	return n, nil
}

// titled returns the info of a session that was not exported, whose title is the beginning of what a user says first.
func titled(id string, list [][]byte) []byte {
	first, _ := parse(list[0])
	var info object
	info.putText("id", id)
	info.putText("title", titleOf(list))
	info.put("time", created(first))
	info.put(foreign, []byte("{}"))
	return info.bytes()
}

func titleOf(list [][]byte) string {
	for _, text := range list {
		u, _ := parse(text)
		parts, _ := elements(u.get("parts"))
		for _, text := range parts {
			p, _ := parse(text)
			words := []rune(strings.Join(strings.Fields(p.text("text")), " "))
			switch {
			case u.text("role") != "user" || p.text("type") != "text" || len(words) == 0:
			case len(words) > maxTitle:
				return string(words[:maxTitle]) + "…"
			default:
				return string(words)
			}
		}
	}
	return "Chat"
}

// maxTitle is the length of a title, in characters.
const maxTitle = 80

// foreignHead returns the value of a message that was not exported.
func (rd *reading) foreignHead(id string, u object) []byte {
	rest := u.without("role", "parts")
	if id == u.text("id") {
		rest = rest.without("id")
	}
	var info object
	info.putText("id", id)
	info.putText("sessionID", rd.rec.External)
	info.put("role", u.get("role"))
	info.put("time", created(u))
	info.put(foreign, rest.bytes())
	return info.bytes()
}

// created returns the time of a message, for pages: createdAt in its metadata is what the AI SDK's documentation suggests. It is nil if
// there is none.
func created(u object) []byte {
	metadata, _ := u.object("metadata")
	at := metadata.get("createdAt")
	ms, err := strconv.ParseInt(string(at), 10, 64)
	if isString(at) {
		var t time.Time
		t, err = time.Parse(time.RFC3339, ledger.Unquote(at))
		ms = t.UnixMilli()
	}
	if err != nil || ms <= 0 || ms > 1<<53 {
		return nil
	}
	return fmt.Appendf(nil, `{"created":%d}`, ms)
}

// messageID returns the id of a message in the session: its own, or, if that is none there or is taken, one made of it.
func (rd *reading) messageID(theirs string) string {
	id := theirs
	for rd.taken[id] || !isID(id) {
		id = madeID(theirs, rd.made[theirs])
		rd.made[theirs]++
	}
	rd.taken[id] = true
	return id
}

// isID reports whether a text can be the id of a message or part.
func isID(id string) bool {
	_, bad := session.ParseKey(session.PartKey("m", id))
	return bad == nil
}

// madeID returns the nth id that stands for a text.
func madeID(text string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", n, text))
	return "ui_" + hex.EncodeToString(sum[:16])
}

// parts reads the parts of a message, of which the first before are read already.
func (rd *reading) parts(of context, message string, exported bool, before int, parts [][]byte) error {
	taken := map[string]bool{} // ids of parts, and those that parts to come say they have
	ids := make([]string, len(parts))
	for j := range parts {
		ids[j] = ownID(parts[j:], exported)
		taken[ids[j]] = true
	}
	seen := map[string]bool{}
	for j := 0; j < len(parts); {
		id, n := ids[j], 0
		var payload []byte
		if id != "" && !seen[id] {
			payload, n = of.decodeOwn(message, id, parts[j:])
		}
		if n == 0 {
			if id == "" || seen[id] {
				for id = fmt.Sprintf("prt_%06d", before+j+1); taken[id]; id += "_" {
				}
			}
			u, _ := parse(parts[j])
			payload, n = append(object{{"id", quote(id)}, {"sessionID", quote(of.session)}, {"messageID", quote(message)}}, decodeForeign(u)...).bytes(), 1
		}
		taken[id], seen[id] = true, true
		if err := rd.put("part", payload, fmt.Sprintf("part %d", before+j+1)); err != nil {
			return err
		}
		j += n
	}
	return nil
}

// put adds a value to the batch. what says which of the message's parts it is; "" is the message itself.
func (rd *reading) put(kind string, payload []byte, what string) error {
	err := rd.reader.Item(kind, payload)
	if err == nil && len(payload) > rd.limits.Payload {
		if rd.limits.SkipTooLarge {
			last := len(rd.reader.Puts) - 1
			rd.rec.Notices = append(rd.rec.Notices, fmt.Sprintf("message %d: left out %s, which has %d bytes where a payload may have %d",
				rd.n, rd.reader.Puts[last].Key, len(payload), rd.limits.Payload))
			rd.reader.Puts = rd.reader.Puts[:last]
			return nil
		}
		err = fault.TooLarge.With("it has %d bytes as a payload, which may have %d", len(payload), rd.limits.Payload)
	}
	if err != nil && what != "" {
		err = in(what, err)
	}
	return err
}

// next ends a batch.
func (rd *reading) next(line int) {
	if len(rd.reader.Puts) > 0 {
		rd.rec.Batches = append(rd.rec.Batches, opencode.Batch{Line: line, Puts: rd.reader.Puts})
	}
	rd.reader.Puts = nil
}
