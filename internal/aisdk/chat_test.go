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
	"github.com/mooring-rpc/mooring/internal/httpapi/apitest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// chatter is what a chat's ref allows.
var chatter = obj{"rights": []string{"read", "ask"}, "ask": []string{"prompt", "stop"}}

// prompt returns the id of the only open prompt, once it is there.
func (c *chat) prompt() (id string) {
	c.TB.Helper()
	until.True(c.TB, "it is asked", func() bool {
		list := c.Ask("GET", "sessions/"+c.ID+"/requests?kinds=prompt", c.Owner, nil)["requests"].([]any)
		if len(list) > 0 {
			id = list[len(list)-1].(obj)["request"].(string)
		}
		return len(list) > 0
	})
	return id
}

func (c *chat) streamPath() string { return Chat + "/" + c.ID + "/stream" }

// A message is one prompt however often it is sent, and streams that begin before, during and after the answer have the same
// message.
func TestOnePromptOneAnswer(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		c := start(t, st, nil).chat()
		ref := c.Share(chatter)
		before := c.open("POST", Chat, ref, c.say("u1", "do it"))
		id := c.prompt()
		twice := c.open("POST", Chat, ref, c.say("u1", "do it"))
		waits := c.open("GET", c.streamPath(), ref, nil)
		claim := c.Claim(id)
		turn := "turn_" + id
		c.Begin(turn, obj{"parentID": "user_" + id})
		c.PutText(turn, "p1", "It is")
		before.until(`"delta":"It is"`)
		during := c.open("GET", c.streamPath(), ref, nil)
		during.until(`"delta":"It is"`)
		c.Apply(op("appendText", "key", "part/"+turn+"/p1", "offset", 5, "text", " blue.\n"))
		c.Apply(op("put", "key", "part/"+turn+"/p2", "payload", obj{"type": "tool", "tool": "bash", "callID": "c", "state": obj{"status": "running", "input": obj{"command": "ls"}}}))
		c.Apply(op("put", "key", "part/"+turn+"/p2", "payload", obj{"type": "tool", "tool": "bash", "callID": "c", "state": obj{"status": "completed", "input": obj{"command": "ls"}, "output": "a"}}))
		c.Finish(turn, id, claim, obj{"message": turn, "stopReason": "end_turn"})
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
		if status, text := c.Text("GET", c.streamPath(), ref, nil); status != http.StatusNoContent || text != "" {
			t.Errorf("none runs: %d %s", status, text)
		}
		asked := c.Ask("GET", "sessions/"+c.ID+"/state?prefix=request/&values=true", c.Owner, nil)["entries"].([]any)
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
	ref := c.Share(chatter)
	put := func(key string, value obj) { c.Apply(op("put", "key", key, "payload", value)) }
	assistant := func(id, parent string) { put("message/"+id, obj{"id": id, "role": "assistant", "parentID": parent}) }

	assistant("old", "")
	asked := c.open("POST", Chat, ref, c.say("u1", "look"))
	id := c.prompt()
	claim := c.Claim(id)
	put("message/typed", obj{"id": "typed", "role": "user"}) // in the agent's own terminal
	assistant("typed_answer", "typed")
	c.PutText("typed_answer", "p", "not for the chat")
	put("message/msg_1", obj{"id": "msg_1", "role": "user"})
	put("part/msg_1/p", obj{"type": "text", "text": "look", "metadata": obj{"mooring": obj{"request": id}}})
	assistant("msg_2", "msg_1")
	c.PutText("msg_2", "p", "I look. ")
	asked.until("I look")
	joined := c.open("GET", c.streamPath(), ref, nil)
	joined.until("I look")
	status, text := c.Text("POST", Chat+"/"+c.ID+"/stop", ref, nil)
	if status != 200 || !strings.Contains(text, `"message":"msg_2"`) {
		t.Errorf("stop: %d %s", status, text)
	}
	assistant("msg_3", "msg_1")
	c.PutText("msg_3", "p", "Done")
	assistant("old", "") // is changed, and not of this prompt
	c.Apply(op("answer", "request", id, "claim", claim, "payload", obj{"message": "msg_3", "stopReason": "end_turn"}))
	for name, r := range map[string]*reading{"asked": asked, "joined": joined, "again": c.open("POST", Chat, ref, c.say("u1", "look"))} {
		if got := r.rest(); got.id != "msg_2" || !slices.Equal(got.texts(), []string{"I look. ", "Done"}) {
			t.Errorf("%s: %v", name, got)
		}
	}

	asked = c.open("POST", Chat, ref, c.say("u2", "and now"))
	id = c.prompt()
	claim = c.Claim(id)
	c.Begin("own", nil)
	c.PutText("own", "p", "My own way")
	asked.until("My own way")
	joined = c.open("GET", c.streamPath(), ref, nil)
	joined.until("My own way")
	c.Finish("own", id, claim, obj{"message": "own"})
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
	ref := c.Share(chatter)
	asked := c.open("POST", Chat, ref, c.say("u1", "write"))
	id := c.prompt()
	claim := c.Claim(id)
	turn := "turn_" + id
	c.Begin(turn, nil)
	c.PutText(turn, "a", "one two")
	c.PutText(turn, "b", "kept")
	asked.until("kept")
	c.PutText(turn, "a", "one three")
	asked.until("reset-step")
	c.Apply(op("remove", "key", "part/"+turn+"/b"))
	c.Finish(turn, id, claim, obj{"message": turn})
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
	ref := c.Share(chatter)

	// One that waits is withdrawn by a stop, where it was asked under the same ref.
	asked := c.open("POST", Chat, ref, c.say("u1", "wait"))
	id := c.prompt()
	if status, text := c.Text("POST", Chat+"/"+c.ID+"/stop", c.Share(chatter), nil); status != http.StatusNoContent {
		t.Errorf("another's stop: %d %s", status, text)
	}
	if status, text := c.Text("POST", Chat+"/"+c.ID+"/stop", ref, nil); status != 200 || !strings.Contains(text, id) {
		t.Errorf("stop: %d %s", status, text)
	}
	if got := asked.rest(); got.end != "abort" {
		t.Errorf("withdrawn: %v", got)
	}

	asked = c.open("POST", Chat, ref, c.say("u2", "fail"))
	id = c.prompt()
	claim := c.Claim(id)
	if status, text := c.Text("POST", Chat+"/"+c.ID+"/stop", ref, nil); status != http.StatusServiceUnavailable || !strings.Contains(text, "in a moment") {
		t.Errorf("a stop before there is a turn: %d %s", status, text)
	}
	c.Begin("turn_"+id, nil)
	asked.until("start-step")
	var stops []string
	for range 2 {
		status, text := c.Text("POST", Chat+"/"+c.ID+"/stop", ref, nil)
		if status != 200 {
			t.Errorf("stop: %d %s", status, text)
		}
		stops = append(stops, text)
	}
	if stops[0] != stops[1] {
		t.Errorf("two stops are %q", stops)
	}
	c.Finish("turn_"+id, id, claim, obj{"message": "turn_" + id, "error": "out of ideas"})
	if got := asked.rest(); got.end != "error" || !strings.Contains(strings.Join(asked.texts, ""), `"errorText":"out of ideas"`) {
		t.Errorf("failed: %v", got)
	}

	asked = c.open("POST", Chat, ref, c.say("u3", "get lost"))
	id = c.prompt()
	claim = c.Claim(id)
	c.Apply(op("answer", "request", id, "claim", claim, "state", "unknown", "reason", "the runner was killed"))
	if got := asked.rest(); got.end != "error" || !strings.Contains(strings.Join(asked.texts, ""), "the runner was killed") {
		t.Errorf("unknown: %v", got)
	}
}

// A revoke cuts a stream off at once, with an error that has nothing of the session; a server that stops breaks it off, so that it does not
// look like the end of the message.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	c := start(t, teststore.SQLite(t), func(_ *node.Config, api *httpapi.Config) { api.Heartbeat = 20 * time.Millisecond }).chat()
	ref, other := c.Share(chatter), c.Share(chatter)
	asked := c.open("POST", Chat, ref, c.say("u1", "secret"))
	id := c.prompt()
	c.Claim(id)
	c.Begin("turn_"+id, nil)
	c.PutText("turn_"+id, "p", "hidden")
	asked.until("hidden")
	stays := c.open("GET", c.streamPath(), other, nil)
	stays.until("hidden")
	refID, secret, _ := strings.Cut(ref[strings.LastIndex(ref, "/")+1:], "#")
	c.Ask("DELETE", "sessions/"+c.ID+"/refs/"+refID, c.Owner, nil)
	c.PutText("turn_"+id, "q", "after the cut")
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
	c.Stop()
	if err := <-ended; err != io.ErrUnexpectedEOF {
		t.Errorf("where the server stops it ends with %v", err)
	}
	if strings.Contains(c.Log.String(), secret) {
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
	ref := c.Share(chatter)
	asked := c.open("POST", Chat, ref, c.say("u1", "much"))
	id := c.prompt()
	c.Claim(id)
	turn := "turn_" + id
	c.Begin(turn, nil)
	stalled := c.Do("GET", c.streamPath(), c.Share(chatter), nil) // nobody reads it
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
			c.PutText(turn, name, "")
		}
		c.Apply(op("appendText", "key", "part/"+turn+"/"+name, "offset", i%8*piece, "text", strings.Repeat("x", piece)))
	}
	c.PutText(turn, "q", "the last")
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
	if _, err := io.ReadAll(stalled.Body); err == nil || time.Since(began) > apitest.Patience/2 {
		t.Errorf("the stream of a reader who took nothing ended with %v after %v", err, time.Since(began))
	}
}
