package attach

// What opencode asks, as requests: permissions and questions.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/client"
)

// pending is what opencode waits for an answer to.
type pending struct {
	ID      string `json:"id"` // the request's, too
	Session string `json:"sessionID"`
	Tool    struct {
		Message string `json:"messageID"`
		Call    string `json:"callID"`
	} `json:"tool"`

	// Of a permission.
	Permission string          `json:"permission"`
	Patterns   []string        `json:"patterns"`
	Always     []string        `json:"always"`
	Metadata   json.RawMessage `json:"metadata"`

	// Of questions.
	Questions []question `json:"questions"`

	digest string // of the payload that is shown; "" before it was asked
}

type question struct {
	Question string           `json:"question"`
	Header   string           `json:"header"`
	Options  []questionOption `json:"options"`
	Multiple bool             `json:"multiple,omitempty"`
}

type questionOption struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Choices, as opencode names what a permission is answered with.
const (
	replyOnce   = "once"
	replyAlways = "always"
	replyReject = "reject" // of questions too
)

// The events by which opencode says what became of what it asks.
const (
	permissionAsked   = "permission.asked"
	permissionReplied = "permission.replied"
	questionAsked     = "question.asked"
	questionReplied   = "question.replied"
	questionRejected  = "question.rejected"
)

// Bounds of requests.
const (
	maxShown   = 1 << 20 // bytes of what is shown; more cannot be read before it is answered
	maxLabel   = 200
	maxChoices = 32
)

func (p *pending) kind() string {
	if len(p.Questions) > 0 {
		return client.KindQuestion
	}
	return client.KindPermission
}

// path returns the path of opencode's API at which it is answered.
func (p *pending) path() string {
	if p.kind() == client.KindQuestion {
		return "/question/" + p.ID
	}
	return "/permission/" + p.ID
}

// shown is what people are shown: what pages know of a payload stands first, and all that opencode says after it.
type shown struct {
	Title   string      `json:"title,omitempty"`
	Text    string      `json:"text,omitempty"`
	Command string      `json:"command,omitempty"`
	Diff    []shownDiff `json:"diff,omitempty"`
	Tool    *shownTool  `json:"tool,omitempty"`

	Patterns  []string        `json:"patterns,omitempty"`
	Always    []string        `json:"always,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Questions []question      `json:"questions,omitempty"`
	Session   string          `json:"session,omitempty"` // of a sub-agent's, opencode's id
}

type shownDiff struct {
	File  string `json:"file"`
	Patch string `json:"patch"`
}

type shownTool struct {
	Title string          `json:"title,omitempty"`
	Kind  string          `json:"kind"`
	Input json.RawMessage `json:"input,omitempty"`
}

// show returns the payload and the choices of the request. The tool is as its message has it, nil if that is not known.
func (p *pending) show(in *message, own string) (payload json.RawMessage, choices []client.Choice) {
	var s shown
	if p.Session != own {
		s.Session = p.Session
	}
	if p.kind() == client.KindQuestion {
		s.Questions = p.Questions
		if len(p.Questions) == 1 {
			q := p.Questions[0]
			s.Title, s.Text = q.Header, q.Question
			choices = q.choices()
		}
		return encode(s), choices
	}
	s.Tool = &shownTool{Kind: p.Permission}
	if in != nil {
		for _, part := range in.Parts {
			if part.CallID == p.Tool.Call && part.CallID != "" {
				s.Tool.Title, s.Tool.Input = part.State.Title, part.State.Input
			}
		}
	}
	s.Title = p.Permission + " " + strings.Join(p.Patterns, ", ")
	s.Patterns, s.Always, s.Metadata = p.Patterns, p.Always, p.Metadata
	var meta struct {
		Command string `json:"command"`
		File    string `json:"filepath"`
		Diff    string `json:"diff"`
	}
	if json.Unmarshal(p.Metadata, &meta) == nil {
		if s.Command = meta.Command; meta.Diff != "" {
			s.Diff = []shownDiff{{meta.File, meta.Diff}}
		}
	}
	always := "Always"
	if len(p.Always) > 0 {
		always += ": " + strings.Join(p.Always, ", ")
	}
	return encode(s), []client.Choice{
		{ID: replyOnce, Label: "Once", Kind: "allow_once"},
		{ID: replyAlways, Label: clip(always), Kind: "allow_always"},
		{ID: replyReject, Label: "Reject", Kind: "reject_once"},
	}
}

// choices returns the choices of a question of which one option is wanted; nil where any answer is.
func (q *question) choices() (list []client.Choice) {
	if q.Multiple || len(q.Options) == 0 || len(q.Options) >= maxChoices {
		return nil
	}
	for i, o := range q.Options {
		label := o.Label
		if o.Description != "" {
			label += ": " + o.Description
		}
		list = append(list, client.Choice{ID: strconv.Itoa(i + 1), Label: clip(label)})
	}
	return append(list, client.Choice{ID: replyReject, Label: "Do not answer"})
}

func clip(s string) string {
	if len(s) > maxLabel {
		s = strings.ToValidUTF8(s[:maxLabel-len("…")], "") + "…"
	}
	return s
}

// reply returns what opencode is told: the end of the path, and the body.
func (p *pending) reply(choice string, payload json.RawMessage) (path string, body any) {
	var said struct {
		Text    string     `json:"text"`
		Reject  bool       `json:"reject"`
		Answers [][]string `json:"answers"`
	}
	_ = json.Unmarshal(payload, &said) // what cannot be read says nothing
	if p.kind() == client.KindPermission {
		body := map[string]string{"reply": replyReject}
		if choice == replyOnce || choice == replyAlways {
			body["reply"] = choice
		} else if said.Text != "" {
			body["message"] = said.Text
		}
		return "/reply", body
	}
	switch n, err := strconv.Atoi(choice); {
	case len(said.Answers) == len(p.Questions):
	case err == nil && len(p.Questions) == 1 && n >= 1 && n <= len(p.Questions[0].Options):
		said.Answers = [][]string{{p.Questions[0].Options[n-1].Label}}
	case choice == "" && said.Text != "" && !said.Reject:
		said.Answers = make([][]string, len(p.Questions))
		for i := range said.Answers {
			said.Answers[i] = []string{said.Text}
		}
	default:
		return "/reject", nil
	}
	return "/reply", map[string]any{"answers": said.Answers}
}

// replied is what became of a permission or a question in opencode, as its events say.
type replied struct {
	Request string     `json:"requestID"`
	Reply   string     `json:"reply"`
	Answers [][]string `json:"answers"`
}

// answer returns how the request is answered by what was answered in opencode. ok is false if it cannot be: it offers choices, and was answered
// in another way.
func (p *pending) answer(r replied, event string) (o client.AnswerOptions, ok bool) {
	if p.kind() == client.KindPermission {
		return client.AnswerOptions{Shown: p.digest, Choice: r.Reply, Payload: map[string]any{"in": "opencode"}}, true
	}
	var choices []client.Choice
	if len(p.Questions) == 1 {
		choices = p.Questions[0].choices()
	}
	o.Payload = map[string]any{"in": "opencode", "answers": r.Answers}
	if event == questionRejected {
		o.Payload = map[string]any{"in": "opencode", "reject": true}
		if choices != nil {
			o.Choice = replyReject
		}
		return o, true
	}
	if choices == nil {
		return o, true
	}
	for i, option := range p.Questions[0].Options {
		if len(r.Answers) == 1 && len(r.Answers[0]) == 1 && r.Answers[0][0] == option.Label {
			o.Choice = strconv.Itoa(i + 1)
		}
	}
	return o, o.Choice != ""
}

// digestOf returns the digest of a payload.
func digestOf(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}
