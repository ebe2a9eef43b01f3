//go:build unix

package a2ahttp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// What is read of a task stays charged to its ref until the reader has taken it, however slow that is. A stream has what is more
// than a client reads at once after the task that it begins with.
func TestSlowReadersAreCharged(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	s := r.Session()
	ref := s.Share(sender)
	c := connect(t, r, a2a.TransportProtocolJSONRPC, ref)
	res, err := c.SendMessage(within(t), atOnce(say("m", strings.Repeat("x", 3<<20))))
	if err != nil {
		t.Fatal(err)
	}
	id := string(res.(*a2a.Task).ID)
	turn, claim := begin(s, id)
	const parts, size = 4, 3 << 20
	for p := range parts {
		s.Apply(op("put", "key", session.PartKey(turn, fmt.Sprint("p", p)), "payload", obj{"type": "text", "text": strings.Repeat("日", size/3)}))
	}
	_, known := r.Server.MemoryBudgets()
	for _, tc := range []struct {
		name, request string
		least         int64
	}{
		{"a task", "GET " + RESTPath + "tasks/" + id, 2 * (parts + 1) * size},
		{"a list", "GET " + RESTPath + "tasks?includeArtifacts=true", 2 * (parts + 1) * size},
		{"a stream", "GET " + RESTPath + "tasks/" + id + ":subscribe", 2 * (parts + 1) * size},
	} {
		conn, err := (&net.Dialer{}).DialContext(within(t), "tcp", strings.TrimPrefix(r.Base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", tc.request, ref); err != nil {
			t.Fatal(err)
		}
		answer := bufio.NewReaderSize(conn, 16)
		for line := ""; !strings.Contains(line, `{"`); { // it is being written
			piece, err := answer.ReadString('{')
			if err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			next, err := answer.Peek(1)
			if err != nil {
				t.Fatal(err)
			}
			line = piece[len(piece)-1:] + string(next)
		}
		if held := known.Stats().Held; held < tc.least {
			t.Errorf("%s: %d bytes are charged, want %d", tc.name, held, tc.least)
		}
		if tc.name == "a stream" {
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 20)
			go func() { _, _ = io.Copy(io.Discard, answer) }()
			until.True(t, "the stream lets go of what its reader has", func() bool { return known.Stats().Held < tc.least })
		}
		_ = conn.Close()
		until.True(t, tc.name+" is let go of", func() bool { return known.Stats().Held == 0 })
	}
	long := read(t, c.SubscribeToTask(within(t), &a2a.SubscribeToTaskRequest{ID: a2a.TaskID(id)})) // the SDK's client reads lines of 10 MB
	whole := strings.Repeat(strings.Repeat("日", size/3)+"|", parts)
	long.until("all that there is", func(t *a2a.Task) bool { return textOf(t) == whole })
	s.Finish(turn, id, claim, obj{"stopReason": "end_turn"})
	if end := long.rest(); textOf(end) != whole || end.Status.State != a2a.TaskStateCompleted {
		t.Errorf("it ends as %+v with %d bytes", end.Status, len(textOf(end)))
	}
}

// The body of a request whose answer is a stream stays charged as long as the stream keeps it.
func TestBodiesOfStreamsAreCharged(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	s := r.Session()
	ref := s.Share(sender)
	_, known := r.Server.MemoryBudgets()
	send := `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"tenant":"` + strings.Repeat("x", 4<<20) + `"}`
	for path, body := range map[string]string{
		RESTPath + "message:stream": send,
		RPCPath:                     `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":` + send + `}`,
	} {
		resp := r.Do("POST", path, ref, body)
		if _, err := bufio.NewReader(resp.Body).ReadString('{'); err != nil { // it is read
			t.Fatal(err)
		}
		if held := known.Stats().Held; held < 8<<20 {
			t.Errorf("%s: %d bytes are charged", path, held)
		}
		_ = resp.Body.Close()
		until.True(t, "it is let go of", func() bool { return known.Stats().Held == 0 })
	}
}

// Whether an answer counts as a stream is decided by what the SDK's handler makes of the request; the connection of one ends with it.
func TestMembersThatStandTwice(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	s := r.Session()
	ref := s.Share(sender)
	message := `"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}`
	rpc := func(members string) string { return `{"jsonrpc":"2.0","id":1,` + members + `}` }
	sent, _ := r.Text("POST", RPCPath, ref, rpc(`"method":"SendMessage","params":{`+message+`,"configuration":{"returnImmediately":true}}`))
	id := prompt(s, 1)
	turn, claim := begin(s, id)
	s.Finish(turn, id, claim, obj{"stopReason": "end_turn"})
	if sent != http.StatusOK {
		t.Fatal(sent)
	}
	for _, tc := range []struct {
		path, body string
		stream     bool
	}{
		{RPCPath, rpc(`"method":"SendStreamingMessage","params":{` + message + `}`), true},
		{RPCPath, rpc(`"method":"SendMessage","params":{` + message + `}`), true},
		{RPCPath, rpc(`"method":"SendMessage","params":{` + message + `,"configuration":{"returnImmediately":true}}`), false},
		{RPCPath, rpc(`"method":"GetTask","method":"SendStreamingMessage","params":{` + message + `}`), true},
		{RPCPath, rpc(`"method":"GetTask","Method":"SendStreamingMessage","params":{` + message + `}`), true},
		{RPCPath, rpc(`"method":"SendStreamingMessage","METHOD":"SendMessage","params":{` + message + `,"configuration":{"returnImmediately":true}}`), false},
		{RPCPath, rpc(`"method":"SendMessage","params":{` + message + `,"configuration":{"returnImmediately":true,"ReturnImmediately":false}}`), true},
		{RPCPath, rpc(`"method":"SendMessage","params":{` + message + `,"Configuration":{"RETURNIMMEDIATELY":true}}`), false},
		{RESTPath + "message:stream", "{" + message + "}", true},
		{RESTPath + "message:send", "{" + message + "}", true},
		{RESTPath + "message:send", "{" + message + `,"configuration":{"returnImmediately":true},"configuration":{"returnImmediately":false}}`, true},
		{RESTPath + "message:send", "{" + message + `,"Configuration":{"returnimmediately":true}}`, false},
	} {
		resp := r.Do("POST", tc.path, ref, tc.body)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(text), "TASK_STATE_COMPLETED") {
			t.Errorf("%s %s: %s %v", tc.path, tc.body, text, err)
		}
		if resp.Close != tc.stream {
			t.Errorf("%s %s: a stream: %v", tc.path, tc.body, resp.Close)
		}
		if got := resp.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control: %s", tc.path, got)
		}
	}
}
