package acprecord

// The recorder: turns, text, and what of the agent's state is kept beside them.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Op is an op to be committed, after those before it.
type Op struct {
	Method  string          // put, begin, appendText or finalize
	Key     string          // of put and appendText
	Message string          // the id, of begin and finalize
	Payload json.RawMessage // of put, begin and finalize
	New     bool            // of put: only where there is no value
	Offset  int             // of appendText
	Text    string          // of appendText
	Status  string          // of finalize
	Error   json.RawMessage // of finalize without a payload
}

// Config says what is recorded about.
type Config struct {
	Session string // Mooring's id of the session
	Dir     string // the agent's working folder
	Run     string // of this recorder, in ids of messages that no prompt asked for: another one has another
	Title   string // of the session, until the agent gives one; "": the first prompt's first line

	Gather    time.Duration // how long text waits for more; default 50 ms
	Chunk     int           // bytes of text that do not wait; default 4 KiB
	TurnBytes int           // of a turn's ops; default 256 MiB
	TurnText  int           // of a turn's text, as JSON: the event of its end has all of it; default 16 MiB
}

// Bounds that no configuration changes.
const (
	partText    = 1 << 20
	opText      = 256 << 10
	shownBytes  = 256 << 10 // of an input, an output, a text before or after a change
	fileBytes   = 512 << 10 // of the texts of a tool call's changes together
	maxPayload  = 3 << 20   // of a part; the server's limit is 4 MiB
	maxFiles    = 64        // changed by a tool call
	maxTools    = 10_000
	maxKept     = 64 // tool calls of a turn that have ended and whose values are kept
	answerBytes = 16 << 10
	maxReason   = 8000        // bytes of why a turn failed
	slowBytes   = 16 << 10    // a tool call's part of more is put less often while it runs
	slowGather  = time.Second // namely this often
	idleTurn    = 2 * time.Second
)

// ErrFlood is reported when a turn has more than may be recorded of it.
var ErrFlood = errors.New("the agent wrote too much in one turn")

// Recorder is the recording of a session. It is for one goroutine at a time.
type Recorder struct {
	cfg   Config
	state State
	stale bool // the state has changed since it was put
	title string
	begun int64 // Unix ms of the session's value; 0 before there is one

	turn     *turn
	lastTurn string
	tools    map[string]*tool // by the agent's id, of the last turn and the one before
	over     []*tool          // those of the turn that have ended, as far as their values are kept
	cost     float64          // of the session so far
	unasked  int              // turns without a prompt so far
	lastTime int64            // of the newest change
	gatherBy int64            // when what is gathered is due, Unix ms; 0: nothing is
}

// turn is a turn that is open.
type turn struct {
	id      string
	user    string // the prompt's message; "" if there was none
	begun   int64
	cost    float64 // of the session, before it
	parts   int
	bytes   int
	text    int
	growing *growing
	answer  string // the text of the last part of text, as far as answerBytes
	plan    string // its part's id
	dirty   []*tool
}

// growing is a part whose text grows.
type growing struct {
	id, kind string
	begun    int64
	put      bool
	length   int
	text     strings.Builder // gathered, not yet in an op
}

// New returns a recorder for a session. begun, in Unix ms, is when it was first recorded, and so has a title; 0 if it was
// not.
func New(cfg Config, begun int64) *Recorder {
	defaults.Set(&cfg.Gather, 50*time.Millisecond)
	defaults.Set(&cfg.Chunk, 4<<10)
	defaults.Set(&cfg.TurnBytes, 256<<20)
	defaults.Set(&cfg.TurnText, 16<<20)
	return &Recorder{cfg: cfg, title: cfg.Title, begun: begun, tools: map[string]*tool{}}
}

// Begun returns when the session was first recorded, in Unix ms; 0 if it was not.
func (r *Recorder) Begun() int64 { return r.begun }

// Turn returns the id of the turn that is open; "" if none is.
func (r *Recorder) Turn() string {
	if r.turn == nil {
		return ""
	}
	return r.turn.id
}

// Answer returns the last text of the turn that is open, of answerBytes at most.
func (r *Recorder) Answer() string {
	if r.turn == nil {
		return ""
	}
	return r.turn.answer
}

// Prompt records a prompt: the message of the user, with its content blocks as parts, and the turn that it begins.
func (r *Recorder) Prompt(now time.Time, user, turnID string, blocks []json.RawMessage) []Op {
	ops := r.CloseUnasked(now)
	ms := now.UnixMilli()
	if r.begun == 0 {
		r.begun = ms
		if r.title == "" {
			r.title = titleOf(blocks)
		}
		first := r.info(ms)
		first.New = true // the session may be another's, and have a title
		ops = append(ops, first)
	}
	ops = append(ops, put(session.MessageKey(user), message{ID: user, Session: r.cfg.Session, Role: "user", Time: span{Created: ms}}))
	for i, b := range blocks {
		ops = append(ops, put(partKey(user, i+1), userPart(r.cfg.Session, user, i+1, b)))
	}
	return append(ops, r.begin(ms, user, turnID))
}

// begin begins a turn.
func (r *Recorder) begin(ms int64, user, id string) Op {
	for call, t := range r.tools {
		if t.turn != r.lastTurn {
			delete(r.tools, call)
		}
	}
	r.lastTurn, r.over = id, nil
	r.turn = &turn{id: id, user: user, begun: ms, cost: r.cost}
	return Op{Method: session.MethodBegin, Message: id, Payload: encode(r.message(ms, "", nil, nil))}
}

// Update records what the agent says of its session. The error is ErrFlood; the ops are to be committed all the same.
func (r *Recorder) Update(now time.Time, u *acp.Update) (ops []Op, err error) {
	ms := now.UnixMilli()
	r.lastTime = ms
	switch u.Kind {
	case acp.AgentChunk, acp.ThoughtChunk:
		ops = r.chunk(ms, u)
	case acp.ToolCallNew, acp.ToolCallUpdate:
		ops = r.toolCall(ms, u.ToolCall, u.Content)
	case acp.Plan:
		ops = r.plan(ms, u.Entries)
	case acp.InfoUpdate:
		if u.Title != nil && *u.Title != r.title {
			r.title = *u.Title
			ops = append(ops, r.info(ms))
		}
	default:
		r.note(ms, u)
	}
	return ops, r.count(ops)
}

// count adds ops to what the turn has.
func (r *Recorder) count(ops []Op) error {
	if r.turn == nil {
		return nil
	}
	for i := range ops {
		n := quotedLen(ops[i].Text)
		r.turn.bytes += len(ops[i].Payload) + n + 100
		if r.turn.growing != nil && strings.HasSuffix(ops[i].Key, "/"+r.turn.growing.id) {
			r.turn.text += len(ops[i].Payload) + n
		}
	}
	if r.turn.bytes > r.cfg.TurnBytes || r.turn.text > r.cfg.TurnText || len(r.tools) > maxTools {
		return ErrFlood
	}
	return nil
}

// quotedLen returns about how long a text is as JSON.
func quotedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ':
			n += 5
		case c == '"' || c == '\\':
			n++
		}
	}
	return n
}

// need returns the op that begins a turn without a prompt, if none is open.
func (r *Recorder) need(ms int64) []Op {
	if r.turn != nil {
		return nil
	}
	r.unasked++
	return []Op{r.begin(ms, "", fmt.Sprintf("unasked_%s_%06d", r.cfg.Run, r.unasked))}
}

// chunk records a piece of text, or another block, of the agent's answer.
func (r *Recorder) chunk(ms int64, u *acp.Update) []Op {
	block, err := acp.Read[acp.Block](u.Content)
	if err != nil || block.Type == "text" && block.Text == "" {
		return nil
	}
	ops := r.need(ms)
	kind := "text"
	if u.Kind == acp.ThoughtChunk {
		kind = "reasoning"
	}
	if block.Type != "text" {
		ops = append(ops, r.settle(ms)...)
		id := r.nextPart()
		return append(ops, put(session.PartKey(r.turn.id, id), blockPart(r.cfg.Session, r.turn.id, id, block)))
	}
	for text := strings.ToValidUTF8(block.Text, "\uFFFD"); text != ""; {
		g := r.turn.growing
		if g == nil || g.kind != kind || g.length+g.text.Len() >= partText {
			ops = append(ops, r.settle(ms)...)
			g = &growing{id: r.nextPart(), kind: kind, begun: ms}
			r.turn.growing = g
		}
		piece := firstBytes(text, min(opText-g.text.Len(), partText-g.length-g.text.Len()))
		g.text.WriteString(piece)
		if kind == "text" {
			if g.length == 0 && g.text.Len() == len(piece) {
				r.turn.answer = ""
			}
			r.turn.answer = firstBytes(r.turn.answer+firstBytes(piece, answerBytes), answerBytes)
		}
		text = text[len(piece):]
		if g.text.Len() >= r.cfg.Chunk {
			ops = append(ops, r.flushText()...)
		}
	}
	if r.turn.growing.text.Len() > 0 {
		r.wait(ms, r.cfg.Gather)
	}
	return ops
}

// firstBytes returns the beginning of a text, of at most n bytes and whole characters; at least one.
func firstBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	if n <= 0 {
		_, n = utf8.DecodeRuneInString(s)
	}
	return s[:n]
}

// wait makes Due at most d from now.
func (r *Recorder) wait(ms int64, d time.Duration) {
	if by := ms + d.Milliseconds(); r.gatherBy == 0 || by < r.gatherBy {
		r.gatherBy = by
	}
}

// Due returns when Flush is to be called; zero if nothing waits.
func (r *Recorder) Due() time.Time {
	by := r.gatherBy
	if r.turn != nil && r.turn.user == "" && by == 0 {
		by = r.lastTime + idleTurn.Milliseconds()
	}
	if by == 0 {
		return time.Time{}
	}
	return time.UnixMilli(by)
}

// Flush records what has been gathered.
func (r *Recorder) Flush(now time.Time) []Op {
	ms := now.UnixMilli()
	if r.gatherBy != 0 && ms >= r.gatherBy {
		r.gatherBy = 0
		ops := append(r.flushText(), r.flushTools()...)
		_ = r.count(ops) // the next update reports it
		return append(ops, r.flushState()...)
	}
	if r.turn != nil && r.turn.user == "" && ms >= r.lastTime+idleTurn.Milliseconds() {
		return r.CloseUnasked(now)
	}
	return nil
}

// flushText records the text that was gathered.
func (r *Recorder) flushText() []Op {
	if r.turn == nil || r.turn.growing == nil || r.turn.growing.text.Len() == 0 {
		return nil
	}
	g := r.turn.growing
	text, key := g.text.String(), session.PartKey(r.turn.id, g.id)
	g.text.Reset()
	op := Op{Method: session.MethodAppendText, Key: key, Offset: g.length, Text: text}
	if !g.put {
		g.put = true
		op = put(key, part{ID: g.id, Session: r.cfg.Session, Message: r.turn.id, Type: g.kind, Text: &text, Time: &span{Start: g.begun}})
	}
	g.length += len(text)
	return []Op{op}
}

// settle records all that was gathered in the turn, and ends the part that grows.
func (r *Recorder) settle(ms int64) []Op {
	if r.turn == nil {
		return nil
	}
	ops := append(r.flushText(), r.flushTools()...)
	r.turn.growing, r.gatherBy = nil, 0
	if r.stale {
		r.wait(ms, r.cfg.Gather)
	}
	return ops
}

// CloseUnasked ends a turn that had no prompt, if one is open.
func (r *Recorder) CloseUnasked(now time.Time) []Op {
	if r.turn == nil || r.turn.user != "" {
		return nil
	}
	return r.end(now, "completed", "", nil, nil)
}

// Result ends the turn as the agent's answer to the prompt says.
func (r *Recorder) Result(now time.Time, result *acp.PromptResult) []Op {
	status, finish := "completed", result.StopReason
	switch result.StopReason {
	case acp.StopCancelled:
		status = "aborted"
	case acp.StopEndTurn:
		finish = "stop"
	}
	return r.end(now, status, finish, result.Usage, nil)
}

// Fail ends the turn, if one is open: as failed with the reason, or as aborted if it was asked to stop.
func (r *Recorder) Fail(now time.Time, stopped bool, name, reason string) []Op {
	status := "failed"
	if stopped {
		status = "aborted"
	}
	return r.end(now, status, "error", nil, newFailure(name, clip(reason, maxReason)))
}

func (r *Recorder) end(now time.Time, status, finish string, usage *acp.Usage, fail *failure) []Op {
	if r.turn == nil {
		return nil
	}
	ms := now.UnixMilli()
	ops := r.settle(ms)
	ops = append(ops, Op{Method: session.MethodFinalize, Message: r.turn.id, Status: status, Payload: encode(r.message(r.turn.begun, finish, usage, fail))})
	r.turn, r.gatherBy = nil, 0
	return append(ops, r.flushState()...)
}

// Abandoned returns the op that ends the turn of an earlier recorder, and leaves its message as it is.
func (r *Recorder) Abandoned(turnID string, stopped bool, name, reason string) Op {
	status := "failed"
	if stopped {
		status = "aborted"
	}
	return Op{Method: session.MethodFinalize, Message: turnID, Status: status, Error: encode(newFailure(name, clip(reason, maxReason)))}
}

// message returns the turn's message.
func (r *Recorder) message(begun int64, finish string, usage *acp.Usage, fail *failure) message {
	m := message{ID: r.turn.id, Session: r.cfg.Session, Role: "assistant", Parent: r.turn.user, Agent: r.state.Name, Mode: r.state.Mode,
		Time: span{Created: begun}, Finish: finish, Error: fail}
	if usage != nil {
		m.Tokens = &tokens{Input: usage.Input, Output: usage.Output, Reasoning: usage.Thought, Cache: cache{Read: usage.CacheRead, Write: usage.CacheWrite}}
	}
	if finish != "" && r.cost > r.turn.cost {
		m.Cost = r.cost - r.turn.cost
	}
	return m
}

func (r *Recorder) nextPart() string {
	r.turn.parts++
	return partID(r.turn.parts)
}

// info returns the op that puts the session's value.
func (r *Recorder) info(ms int64) Op {
	return put("session", info{ID: r.cfg.Session, Title: clip(r.title, 500), Dir: r.cfg.Dir, Time: span{Created: cmp.Or(r.begun, ms), Updated: ms}})
}

// titleOf returns the first line of a prompt.
func titleOf(blocks []json.RawMessage) string {
	for _, b := range blocks {
		if block, err := acp.Read[acp.Block](b); err == nil && block.Type == "text" {
			line, _, _ := strings.Cut(strings.TrimSpace(block.Text), "\n")
			if line = clip(strings.TrimSpace(line), 100); line != "" {
				return line
			}
		}
	}
	return "Session"
}

// clip returns a text of n bytes at most, and says by an ellipsis that there was more.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return firstBytes(s, n) + "…"
}
