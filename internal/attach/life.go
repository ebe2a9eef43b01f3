package attach

// The life of a prompt: its stages, and what is to be done with it by what opencode shows.

import (
	"encoding/json"
	"strings"
	"time"
)

// stage is how far a prompt has come; the tie's file has its name.
type stage string

// The stages, in their order.
const (
	claiming stage = "claiming" // the claim is being asked for
	taken    stage = "taken"    // it was answered
	handing  stage = "handing"  // opencode may have the message of this id
	handed   stage = "handed"   // opencode has had it
)

// prompt is what the tie's file knows of a prompt.
type prompt struct {
	Request string `json:"request"`
	Stage   stage  `json:"stage"`
	Claim   uint64 `json:"claim,omitempty"`
	Message string `json:"message,omitempty"` // the id of its message, and the ids of the parts
	Parts   []part `json:"parts,omitempty"`
	Refused string `json:"refused,omitempty"` // why opencode is not given it
	End     string `json:"end,omitempty"`     // the id of the batch that ends the request
}

// view is what opencode shows of a prompt.
type view struct {
	busy    bool
	there   bool     // its message
	last    *message // the newest of opencode's answer to it; nil: there is none
	passed  bool     // opencode has begun to answer a later message
	failure string   // the error of the session since the message was sent last; "" for none

	posts int           // how often it was sent by this process
	since time.Duration // the message was sent last, or opencode was seen to rest without having answered it whole
}

// verdict is what is to be done with a prompt.
type verdict int

const (
	wait        verdict = iota + 1
	send                // the message, with the same ids if it was sent before
	answered            // by view.last
	failed              // with view.failure
	interrupted         // opencode ended, or was stopped, while it answered
	removed             // opencode has no such message any more
	ignored             // opencode has the message, and does not begin to answer it
)

const (
	settle   = 2 * time.Second  // for opencode to write what it does last
	patience = 20 * time.Second // for opencode to begin
	maxSends = 3
)

// decide says what is to be done with a prompt that is being handed over, or was. Sending again what opencode has makes no second message: it
// has opencode go on where it had not begun.
func decide(s stage, v view) verdict {
	switch {
	case !v.there && s == handed:
		return removed
	case v.last != nil && v.last.ended() && !v.last.cut() && (v.passed || !v.busy):
		return answered
	case v.busy:
		return wait
	case v.last != nil && v.since < settle:
		return wait
	case v.last != nil:
		return interrupted
	case v.failure != "" && v.posts > 0:
		return failed
	case v.posts == 0:
		return send
	case v.since < patience:
		return wait
	case v.posts < maxSends:
		return send
	case !v.there:
		return removed
	}
	return ignored
}

// message is what is looked at of one of opencode's messages.
type message struct {
	Info struct {
		ID     string `json:"id"`
		Role   string `json:"role"`
		Parent string `json:"parentID"`
		Finish string `json:"finish"`
		Time   struct {
			Completed int64 `json:"completed"`
		} `json:"time"`
		Error *apiError `json:"error"`
	} `json:"info"`
	Parts []struct {
		Type      string       `json:"type"`
		Text      string       `json:"text"`
		Synthetic bool         `json:"synthetic"`
		CallID    string       `json:"callID"`
		Metadata  partMetadata `json:"metadata"`
		State     struct {
			Status string          `json:"status"`
			Title  string          `json:"title"`
			Input  json.RawMessage `json:"input"`
		} `json:"state"`
	} `json:"parts"`
}

// apiError is an error as opencode has it in messages and events.
type apiError struct {
	Name string `json:"name"`
	Data struct {
		Message string `json:"message"`
	} `json:"data"`
}

func (e *apiError) String() string {
	text, _, _ := strings.Cut(e.Data.Message, "\n")
	if text == "" {
		return e.Name
	}
	return text
}

// aborted is opencode's name of the error of a turn that was stopped.
const aborted = "MessageAbortedError"

// ended reports whether an answer is not written on.
func (m *message) ended() bool { return m.Info.Time.Completed != 0 || m.Info.Error != nil }

// cut reports whether an answer's turn did not go on after its tools, though nobody has refused one of them.
func (m *message) cut() bool {
	for _, p := range m.Parts {
		if p.Type == "tool" && p.State.Status != "completed" {
			return false
		}
	}
	return m.Info.Error == nil && m.Info.Finish == "tool-calls"
}

// answer returns how the request of a prompt is answered by the last message of its turn.
func (m *message) answer() map[string]any {
	a := map[string]any{"message": m.Info.ID}
	var texts []string
	for _, p := range m.Parts {
		if p.Type == "text" && p.Text != "" && !p.Synthetic {
			texts = append(texts, p.Text)
		}
	}
	if len(texts) > 0 {
		a["text"] = strings.Join(texts, "\n\n")
	}
	switch e := m.Info.Error; {
	case e != nil && e.Name == aborted:
		a["stopReason"] = "cancelled"
	case e != nil:
		a["error"] = e.String()
	case m.Info.Finish == "length":
		a["stopReason"] = "max_tokens"
	case m.Info.Finish == "content-filter":
		a["stopReason"] = "refusal"
	default:
		a["stopReason"] = "end_turn"
	}
	return a
}

// look returns what a list of messages, the newest last, shows of the message with an id.
func look(list []message, id string) (v view) {
	at := -1
	for i := range list {
		m := &list[i]
		switch {
		case m.Info.ID == id:
			v.there, at = true, i
		case m.Info.Role == "assistant" && m.Info.Parent == id:
			v.there, v.last, v.passed = true, m, false
		case m.Info.Role == "assistant" && v.last != nil:
			v.passed = true
		}
	}
	if v.last == nil && at >= 0 { // a message that came after it was answered, and it with that
		for i := range list[at:] {
			if m := &list[at+i]; m.Info.Role == "assistant" {
				v.last = m
			}
		}
	}
	return v
}
