//go:build unix

package aisdk

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// chatter is what a chat's ref allows.
var chatter = obj{"rights": []string{"read", "ask"}, "ask": []string{"prompt", "stop"}}

// prompt returns the id of the only open prompt, once it is there.
func (c *chat) prompt() (id string) {
	c.t.Helper()
	until.True(c.t, "it is asked", func() bool {
		list := c.ask("GET", "sessions/"+c.id+"/requests?kinds=prompt", c.owner, nil)["requests"].([]any)
		if len(list) > 0 {
			id = list[len(list)-1].(obj)["request"].(string)
		}
		return len(list) > 0
	})
	return id
}

func (c *chat) streamPath() string { return Chat + "/" + c.id + "/stream" }

// A message is one prompt however often it is sent, and streams that begin before, during and after the answer have the same
// message.
func TestOnePromptOneAnswer(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		c := start(t, st, nil).chat()
		ref := c.share(chatter)
		before := c.open("POST", Chat, ref, c.say("u1", "do it"))
		id := c.prompt()
		twice := c.open("POST", Chat, ref, c.say("u1", "do it"))
		waits := c.open("GET", c.streamPath(), ref, nil)
		claim := c.claim(id)
		turn := "turn_" + id
		c.begin(turn, obj{"parentID": "user_" + id})
		c.putText(turn, "p1", "It is")
		before.until(`"delta":"It is"`)
		during := c.open("GET", c.streamPath(), ref, nil)
		during.until(`"delta":"It is"`)
		c.apply(op("appendText", "key", "part/"+turn+"/p1", "offset", 5, "text", " blue.\n"))
		c.apply(op("put", "key", "part/"+turn+"/p2", "payload", obj{"type": "tool", "tool": "bash", "callID": "c", "state": obj{"status": "running", "input": obj{"command": "ls"}}}))
		c.apply(op("put", "key", "part/"+turn+"/p2", "payload", obj{"type": "tool", "tool": "bash", "callID": "c", "state": obj{"status": "completed", "input": obj{"command": "ls"}, "output": "a"}}))
		c.finish(turn, id, claim, obj{"message": turn, "stopReason": "end_turn"})
		first := before.rest()
		if first.id != turn || first.end != "finish" || len(first.parts) != 3 || first.parts[1]["text"] != "It is blue.\n" || first.parts[2]["output"] != "a" {
			t.Errorf("the message is %v", first)
		}
		after := c.open("POST", Chat, ref, c.say("u1", "do it"))
		for name, r := range map[string]*reading{"sent twice": twice, "waits": waits, "during": during, "after": after} {
			if got := r.rest(); !reflect.DeepEqual(got, first) {
				t.Errorf("%s: it is %v", name, got)
			}
		}
		if status, text := c.text("GET", c.streamPath(), ref, nil); status != http.StatusNoContent || text != "" {
			t.Errorf("none runs: %d %s", status, text)
		}
		asked := c.ask("GET", "sessions/"+c.id+"/state?prefix=request/&values=true", c.owner, nil)["entries"].([]any)
		if len(asked) != 2 || !strings.Contains(marshal(t, asked), `"payload":{"text":"do it"}`) {
			t.Errorf("what was asked is %v", asked)
		}
	})
}

func marshal(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Agents record an answer in shapes of their own: a message for each step under the one that they were asked by, or a message
// without a parent.
func TestAnswersOfOtherAgents(t *testing.T) {
	t.Parallel()
	c := start(t, teststore.SQLite(t), nil).chat()
	ref := c.share(chatter)
	put := func(key string, value obj) { c.apply(op("put", "key", key, "payload", value)) }
	assistant := func(id, parent string) { put("message/"+id, obj{"id": id, "role": "assistant", "parentID": parent}) }

	assistant("old", "")
	asked := c.open("POST", Chat, ref, c.say("u1", "look"))
	id := c.prompt()
	claim := c.claim(id)
	put("message/typed", obj{"id": "typed", "role": "user"}) // in the agent's own terminal
	assistant("typed_answer", "typed")
	c.putText("typed_answer", "p", "not for the chat")
	put("message/msg_1", obj{"id": "msg_1", "role": "user"})
	put("part/msg_1/p", obj{"type": "text", "text": "look", "metadata": obj{"mooring": obj{"request": id}}})
	assistant("msg_2", "msg_1")
	c.putText("msg_2", "p", "I look. ")
	asked.until("I look")
	joined := c.open("GET", c.streamPath(), ref, nil)
	joined.until("I look")
	status, text := c.text("POST", Chat+"/"+c.id+"/stop", ref, nil)
	if status != 200 || !strings.Contains(text, `"message":"msg_2"`) {
		t.Errorf("stop: %d %s", status, text)
	}
	assistant("msg_3", "msg_1")
	c.putText("msg_3", "p", "Done")
	assistant("old", "") // is changed, and not of this prompt
	c.apply(op("answer", "request", id, "claim", claim, "payload", obj{"message": "msg_3", "stopReason": "end_turn"}))
	for name, r := range map[string]*reading{"asked": asked, "joined": joined, "again": c.open("POST", Chat, ref, c.say("u1", "look"))} {
		if got := r.rest(); got.id != "msg_2" || !slices.Equal(got.texts(), []string{"I look. ", "Done"}) {
			t.Errorf("%s: %v", name, got)
		}
	}

	asked = c.open("POST", Chat, ref, c.say("u2", "and now"))
	id = c.prompt()
	claim = c.claim(id)
	c.begin("own", nil)
	c.putText("own", "p", "My own way")
	asked.until("My own way")
	joined = c.open("GET", c.streamPath(), ref, nil)
	joined.until("My own way")
	c.finish("own", id, claim, obj{"message": "own"})
	for name, r := range map[string]*reading{"asked": asked, "joined": joined, "again": c.open("POST", Chat, ref, c.say("u2", "and now"))} {
		if got := r.rest(); got.id != "own" || !slices.Equal(got.texts(), []string{"My own way"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A text that is replaced is what every reader has in the end, and so is what was removed.
func TestChangedAnswers(t *testing.T) {
	t.Parallel()
	c := start(t, teststore.SQLite(t), nil).chat()
	ref := c.share(chatter)
	asked := c.open("POST", Chat, ref, c.say("u1", "write"))
	id := c.prompt()
	claim := c.claim(id)
	turn := "turn_" + id
	c.begin(turn, nil)
	c.putText(turn, "a", "one two")
	c.putText(turn, "b", "kept")
	asked.until("kept")
	c.putText(turn, "a", "one three")
	asked.until("reset-step")
	c.apply(op("remove", "key", "part/"+turn+"/b"))
	c.finish(turn, id, claim, obj{"message": turn})
	for name, r := range map[string]*reading{"asked": asked, "again": c.open("POST", Chat, ref, c.say("u1", "write"))} {
		if got := r.rest(); !slices.Equal(got.texts(), []string{"one three"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// How a prompt ends is how its message does.
func TestEndsOfPrompts(t *testing.T) {
	t.Parallel()
	c := start(t, teststore.SQLite(t), nil).chat()
	ref := c.share(chatter)

	// One that waits is withdrawn by a stop, where it was asked under the same ref.
	asked := c.open("POST", Chat, ref, c.say("u1", "wait"))
	id := c.prompt()
	if status, text := c.text("POST", Chat+"/"+c.id+"/stop", c.share(chatter), nil); status != http.StatusNoContent {
		t.Errorf("another's stop: %d %s", status, text)
	}
	if status, text := c.text("POST", Chat+"/"+c.id+"/stop", ref, nil); status != 200 || !strings.Contains(text, id) {
		t.Errorf("stop: %d %s", status, text)
	}
	if got := asked.rest(); got.end != "abort" {
		t.Errorf("withdrawn: %v", got)
	}

	asked = c.open("POST", Chat, ref, c.say("u2", "fail"))
	id = c.prompt()
	claim := c.claim(id)
	if status, text := c.text("POST", Chat+"/"+c.id+"/stop", ref, nil); status != http.StatusServiceUnavailable || !strings.Contains(text, "in a moment") {
		t.Errorf("a stop before there is a turn: %d %s", status, text)
	}
	c.begin("turn_"+id, nil)
	asked.until("start-step")
	var stops []string
	for range 2 {
		status, text := c.text("POST", Chat+"/"+c.id+"/stop", ref, nil)
		if status != 200 {
			t.Errorf("stop: %d %s", status, text)
		}
		stops = append(stops, text)
	}
	if stops[0] != stops[1] {
		t.Errorf("two stops are %q", stops)
	}
	c.finish("turn_"+id, id, claim, obj{"message": "turn_" + id, "error": "out of ideas"})
	if got := asked.rest(); got.end != "error" || !strings.Contains(strings.Join(asked.texts, ""), `"errorText":"out of ideas"`) {
		t.Errorf("failed: %v", got)
	}

	asked = c.open("POST", Chat, ref, c.say("u3", "get lost"))
	id = c.prompt()
	claim = c.claim(id)
	c.apply(op("answer", "request", id, "claim", claim, "state", "unknown", "reason", "the runner was killed"))
	if got := asked.rest(); got.end != "error" || !strings.Contains(strings.Join(asked.texts, ""), "the runner was killed") {
		t.Errorf("unknown: %v", got)
	}
}

// A revoke cuts a stream off at once, with an error that has nothing of the session; a server that stops breaks it off, so that it does not
// look like the end of the message.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	c := start(t, teststore.SQLite(t), func(_ *node.Config, api *httpapi.Config) { api.Heartbeat = 20 * time.Millisecond }).chat()
	ref, other := c.share(chatter), c.share(chatter)
	asked := c.open("POST", Chat, ref, c.say("u1", "secret"))
	id := c.prompt()
	c.claim(id)
	c.begin("turn_"+id, nil)
	c.putText("turn_"+id, "p", "hidden")
	asked.until("hidden")
	stays := c.open("GET", c.streamPath(), other, nil)
	stays.until("hidden")
	refID, secret, _ := strings.Cut(ref[strings.LastIndex(ref, "/")+1:], "#")
	c.ask("DELETE", "sessions/"+c.id+"/refs/"+refID, c.owner, nil)
	c.putText("turn_"+id, "q", "after the cut")
	asked.rest()
	if last := asked.texts[len(asked.texts)-2]; last != `{"type":"error","errorText":"the session is not shown any more: revoked"}` {
		t.Errorf("it ends with %s", last)
	}
	if strings.Contains(strings.Join(asked.texts, ""), "after the cut") {
		t.Error("it has what came after the cut")
	}
	stays.until("after the cut")
	ended := make(chan error, 1)
	go func() {
		_, ok := stays.next()
		if ok {
			t.Errorf("it goes on with %q", stays.texts)
		}
		ended <- stays.scan.Err()
	}()
	c.stop()
	if err := <-ended; err != io.ErrUnexpectedEOF {
		t.Errorf("where the server stops it ends with %v", err)
	}
	if strings.Contains(c.log.String(), secret) {
		t.Error("the log has the secret")
	}
}

// A value that is too large for the memory of a ref cuts its stream off, and so does a reader who takes nothing: neither looks like the
// end of the message.
func TestStreamsThatCostTooMuch(t *testing.T) {
	t.Parallel()
	c := start(t, teststore.SQLite(t), func(cfg *node.Config, api *httpapi.Config) {
		cfg.RefBytes, api.StallTimeout = 4<<20, time.Second
	}).chat()
	ref := c.share(chatter)
	asked := c.open("POST", Chat, ref, c.say("u1", "much"))
	id := c.prompt()
	c.claim(id)
	turn := "turn_" + id
	c.begin(turn, nil)
	stalled := c.do("GET", c.streamPath(), c.share(chatter), nil) // nobody reads it
	asked.until("start-step")
	seen := make(chan bool)
	go func() {
		for text, ok := asked.next(); ok && !strings.Contains(text, "the last"); text, ok = asked.next() {
		}
		seen <- strings.Contains(asked.texts[len(asked.texts)-1], "the last")
	}()
	const piece = 512 << 10
	for i := range 32 {
		name := "p" + string(rune('a'+i/8))
		if i%8 == 0 {
			c.putText(turn, name, "")
		}
		c.apply(op("appendText", "key", "part/"+turn+"/"+name, "offset", i%8*piece, "text", strings.Repeat("x", piece)))
	}
	c.putText(turn, "q", "the last")
	if !<-seen { // a piece at a time it is not too much
		t.Errorf("it ended with %v", asked.scan.Err())
	}
	late := c.open("GET", c.streamPath(), ref, nil)
	for {
		if _, ok := late.next(); !ok {
			break
		}
	}
	if err := late.scan.Err(); err != io.ErrUnexpectedEOF || slices.Contains(late.texts, "[DONE]") {
		t.Errorf("it ended with %v", err)
	}
	began := time.Now()
	if _, err := io.ReadAll(stalled.Body); err == nil || time.Since(began) > patience/2 {
		t.Errorf("the stream of a reader who took nothing ended with %v after %v", err, time.Since(began))
	}
}
