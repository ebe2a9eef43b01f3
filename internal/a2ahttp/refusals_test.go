//go:build unix

package a2ahttp

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// What is refused is refused in both forms of the protocol with the same words, the code and no secret, and nothing is asked.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, api *httpapi.Config) { api.BodyBytes = 10_000 })
	s, other := r.Session(), r.Session()
	good := s.Share(sender)
	second := s.Share(sender)
	dead := s.Share(sender)
	s.Ask("DELETE", "sessions/"+s.ID+"/refs/"+refID(dead), s.Owner, nil)
	wrong := good[:len(good)-3] + "AAA"
	if wrong == good {
		t.Fatal("the wrong ref is the right one")
	}
	message := func(change func(obj)) obj {
		m := obj{"messageId": "m", "role": "ROLE_USER", "parts": []obj{{"text": "do it"}}}
		if change != nil {
			change(m)
		}
		return obj{"message": m, "configuration": obj{"returnImmediately": true}}
	}
	set := func(name string, value any) obj { return message(func(m obj) { m[name] = value }) }
	theirs := sendAs(t, r.Base, second)
	mine := "tasks/" + theirs
	for _, tc := range []struct {
		name, rpc, method, rest, ref string
		params                       any
		status                       int
		reason, message              string
	}{
		{"no ref", "SendMessage", "POST", "message:send", "", message(nil), 401, "UNAUTHENTICATED", "bad_ref_text"},
		{"rubbish for a ref", "SendMessage", "POST", "message:send", "rubbish", message(nil), 401, "UNAUTHENTICATED", "bad_ref_text"},
		{"a wrong ref", "SendMessage", "POST", "message:send", wrong, message(nil), 401, "UNAUTHENTICATED", "unknown_ref"},
		{"a revoked ref", "SendMessage", "POST", "message:send", dead, message(nil), 403, "UNAUTHORIZED", "revoked"},
		{"a space's ref", "SendMessage", "POST", "message:send", r.Owner.Text(), message(nil), 400, "INVALID_PARAMS", "mooring share"},
		{"a body that is too large", "SendMessage", "POST", "message:send", good, set("parts", []obj{{"text": strings.Repeat("x", 10_000)}}), 413, "INVALID_PARAMS", "too_large"},
		{"a ref that only reads", "SendMessage", "POST", "message:send", s.Share(obj{"rights": []string{"read"}}), message(nil), 403, "UNAUTHORIZED", "missing_right"},
		{"a ref that only asks", "SendMessage", "POST", "message:send", s.Share(obj{"rights": []string{"ask"}}), message(nil), 403, "UNAUTHORIZED", "missing_right"},
		{"a ref that asks something else", "SendMessage", "POST", "message:send", s.Share(obj{"rights": []string{"read", "ask"}, "ask": []string{"stop"}}), message(nil), 403, "UNAUTHORIZED", "missing_right"},
		{"a ref that does not read lists", "ListTasks", "GET", "tasks", s.Share(obj{"rights": []string{"ask"}}), obj{}, 403, "UNAUTHORIZED", "missing_right"},
		{"the agent's message", "SendMessage", "POST", "message:send", good, set("role", "ROLE_AGENT"), 400, "INVALID_PARAMS", "ROLE_USER"},
		{"no id", "SendMessage", "POST", "message:send", good, set("messageId", ""), 400, "INVALID_PARAMS", "messageId"},
		{"a long id", "SendMessage", "POST", "message:send", good, set("messageId", strings.Repeat("x", 513)), 400, "INVALID_PARAMS", "512"},
		{"no parts", "SendMessage", "POST", "message:send", good, set("parts", []obj{}), 400, "INVALID_PARAMS", "no parts"},
		{"an empty text", "SendMessage", "POST", "message:send", good, set("parts", []obj{{"text": ""}}), 400, "INVALID_PARAMS", "empty"},
		{"a file that is not there", "SendMessage", "POST", "message:send", good, set("parts", []obj{{"url": "file:///etc/passwd"}}), 400, "CONTENT_TYPE_NOT_SUPPORTED", "https:"},
		{"another context", "SendMessage", "POST", "message:send", good, set("contextId", other.ID), 400, "INVALID_PARAMS", "another than"},
		{"another ref's task", "SendMessage", "POST", "message:send", good, set("taskId", theirs), 404, "TASK_NOT_FOUND", "no such task"},
		{"a task that is there", "SendMessage", "POST", "message:send", second, set("taskId", theirs), 400, "UNSUPPORTED_OPERATION", "without taskId"},
		{"push", "SendMessage", "POST", "message:send", good, obj{"message": message(nil)["message"], "configuration": obj{"taskPushNotificationConfig": obj{"url": "https://example.org"}, "returnImmediately": true}}, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED", "webhook"},
		{"another ref's task is got", "GetTask", "GET", mine, good, obj{"id": theirs}, 404, "TASK_NOT_FOUND", "no such task"},
		{"a request that is no task", "GetTask", "GET", "tasks/req", good, obj{"id": "req"}, 404, "TASK_NOT_FOUND", "no such task"},
		{"another ref's task is cancelled", "CancelTask", "POST", mine + ":cancel", good, obj{"id": theirs}, 404, "TASK_NOT_FOUND", "no such task"},
		{"another session's task", "GetTask", "GET", mine, other.Share(sender), obj{"id": theirs}, 404, "TASK_NOT_FOUND", "no such task"},
		{"a page of 101", "ListTasks", "GET", "tasks?pageSize=101", good, obj{"pageSize": 101}, 400, "INVALID_PARAMS", "100"},
		{"a push configuration", "CreateTaskPushNotificationConfig", "POST", mine + "/pushNotificationConfigs", second, obj{"taskId": theirs, "url": "https://example.org"}, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED", "webhook"},
		{"push configurations", "ListTaskPushNotificationConfigs", "GET", mine + "/pushNotificationConfigs", second, obj{"taskId": theirs}, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED", "webhook"},
		{"one push configuration", "GetTaskPushNotificationConfig", "GET", mine + "/pushNotificationConfigs/x", second, obj{"taskId": theirs, "id": "x"}, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED", "webhook"},
		{"a push configuration's end", "DeleteTaskPushNotificationConfig", "DELETE", mine + "/pushNotificationConfigs/x", second, obj{"taskId": theirs, "id": "x"}, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED", "webhook"},
	} {
		var body any
		if tc.method == "POST" {
			body = tc.params
		}
		restStatus, rest := r.Text(tc.method, RESTPath+tc.rest, tc.ref, body)
		_, rpc := r.Text("POST", RPCPath, tc.ref, obj{"jsonrpc": "2.0", "id": 1, "method": tc.rpc, "params": tc.params})
		if restStatus != tc.status {
			t.Errorf("%s: %d %s", tc.name, restStatus, rest)
		}
		message := ""
		for form, text := range map[string]string{"HTTP+JSON": rest, "JSON-RPC": rpc} {
			var said struct {
				Error struct {
					Message       string
					Data, Details []struct{ Reason string }
				}
			}
			if err := json.Unmarshal([]byte(text), &said); err != nil {
				t.Errorf("%s: %s: %s (%v)", tc.name, form, text, err)
				continue
			}
			e := said.Error
			if message == "" {
				message = e.Message
			}
			if info := append(e.Data, e.Details...); e.Message != message || !strings.Contains(e.Message, tc.message) || strings.Contains(e.Message, "\n") || len(info) == 0 || info[0].Reason != tc.reason {
				t.Errorf("%s: %s: %s", tc.name, form, text)
			}
		}
		for _, ref := range []string{good, dead, wrong, second, other.Owner, r.Owner.Text()} {
			if _, secret, _ := strings.Cut(ref, "#"); strings.Contains(rest+rpc, secret) {
				t.Errorf("%s: the answer has a secret: %s %s", tc.name, rest, rpc)
			}
		}
	}
	if asked := s.Ask("GET", "sessions/"+s.ID+"/state?prefix=request/", s.Owner, nil)["entries"].([]any); len(asked) != 1 {
		t.Errorf("there is %v", asked)
	}
	for _, ref := range []string{good, dead, wrong, second, other.Owner, r.Owner.Text()} {
		if _, secret, _ := strings.Cut(ref, "#"); strings.Contains(r.Log.String(), secret) {
			t.Error("the log has a secret")
		}
	}
}

// sendAs sends a message, and returns its task's id.
func sendAs(t *testing.T, base, ref string) string {
	req, err := http.NewRequestWithContext(within(t), http.MethodPost, base+RESTPath+"message:send",
		strings.NewReader(`{"message":{"messageId":"x","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"returnImmediately":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ref)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Task struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Task.ID == "" {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	http.DefaultClient.CloseIdleConnections()
	return answer.Task.ID
}

// Paths, methods, versions and origins that are not served, and a ref with limits of its own.
func TestAdmission(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, api *httpapi.Config) { api.Origins = []string{"app.example.org"} })
	s := r.Session()
	ref := s.Share(sender)
	send := `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"returnImmediately":true}}`
	rpc := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":` + send + `}`
	for _, tc := range []struct {
		name, method, path, body, header, value string
		status                                  int
		text                                    string
	}{
		{"another path", "GET", RESTPath + "x", "", "", "", 404, "message:send"},
		{"another method", "GET", RPCPath, "", "", "", 405, "POST"},
		{"an action that is none", "POST", RESTPath + "tasks/x:y", "", "", "", 400, "INVALID_REQUEST"},
		{"another version", "POST", RPCPath, rpc, "A2A-Version", "0.3", 400, "VERSION_NOT_SUPPORTED"},
		{"this version", "POST", RPCPath, rpc, "A2A-Version", "1.0", 200, `"task"`},
		{"a method that is none", "POST", RPCPath, strings.Replace(rpc, "SendMessage", "Send", 1), "", "", 200, "METHOD_NOT_FOUND"},
		{"no JSON", "POST", RPCPath, "x", "", "", 200, "PARSE_ERROR"},
		{"no JSON over REST", "POST", RESTPath + "message:send", "x", "", "", 400, "PARSE_ERROR"},
		{"a page", "POST", RESTPath + "message:send", send, "Origin", "https://app.example.org", 200, `"task"`},
		{"another page", "POST", RESTPath + "message:send", send, "Origin", "https://evil.example.org", 403, "origin"},
		{"less than the ref", "POST", RESTPath + "message:send", send, "Mooring-Attenuate", `{"rights":["read"]}`, 403, "missing_right"},
	} {
		req, err := http.NewRequestWithContext(within(t), tc.method, r.Base+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+ref)
		if tc.header != "" {
			req.Header.Set(tc.header, tc.value)
		}
		resp, err := r.HTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		_ = resp.Write(&text)
		_ = resp.Body.Close()
		if resp.StatusCode != tc.status || !strings.Contains(text.String(), tc.text) {
			t.Errorf("%s: %s", tc.name, text.String())
		}
	}
}
