//go:build unix

package aisdk

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// What is refused is refused in one line, which ends in the code and has no secret, and nothing is asked.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, api *httpapi.Config) { api.BodyBytes = 10_000 })
	c, other := r.chat(), r.chat()
	good := c.Share(chatter)
	dead := c.Share(chatter)
	deadID, _, _ := strings.Cut(dead[strings.LastIndex(dead, "/")+1:], "#")
	c.Ask("DELETE", "sessions/"+c.ID+"/refs/"+deadID, c.Owner, nil)
	wrong := good[:len(good)-3] + "AAA"
	if wrong == good {
		t.Fatal("the wrong ref is the right one")
	}
	say := func(change func(obj)) obj {
		body := c.say("u", "text")
		change(body)
		return body
	}
	last := func(message obj) obj {
		return say(func(b obj) { b["messages"] = []obj{message} })
	}
	parts := func(list ...obj) obj { return last(obj{"id": "u", "role": "user", "parts": list}) }
	body := c.say("u", "text")
	for _, tc := range []struct {
		name, method, path, ref string
		body                    any
		status                  int
		code, message           string
	}{
		{"no ref", "POST", Chat, "", body, 401, "bad_ref_text", ""},
		{"rubbish for a ref", "POST", Chat, "rubbish", body, 401, "bad_ref_text", ""},
		{"a wrong ref", "POST", Chat, wrong, body, 401, "unknown_ref", ""},
		{"a wrong ref resumes", "GET", c.streamPath(), wrong, nil, 401, "unknown_ref", ""},
		{"a revoked ref", "POST", Chat, dead, body, 403, "revoked", ""},
		{"a revoked ref resumes", "GET", c.streamPath(), dead, nil, 403, "revoked", ""},
		{"a ref that only reads", "POST", Chat, c.Share(obj{"rights": []string{"read"}}), body, 403, "missing_right", ""},
		{"a ref that only asks", "POST", Chat, c.Share(obj{"rights": []string{"ask"}}), body, 403, "missing_right", ""},
		{"a ref that asks something else", "POST", Chat, c.Share(obj{"rights": []string{"read", "ask"}, "ask": []string{"question"}}), body, 403, "missing_right", ""},
		{"a ref that only asks stops", "POST", Chat + "/" + c.ID + "/stop", c.Share(obj{"rights": []string{"ask"}}), nil, 403, "missing_right", ""},
		{"another session's ref", "POST", Chat, other.Owner, body, 404, "not_found", ""},
		{"another session's ref resumes", "GET", c.streamPath(), other.Owner, nil, 404, "not_found", ""},
		{"a session that is not there", "POST", Chat, r.Owner.Text(), say(func(b obj) { b["id"] = "ses_01M7XHZXQMGNPZVGCRHFRZXZNV" }), 404, "not_found", ""},
		{"no session", "POST", Chat, good, say(func(b obj) { delete(b, "id") }), 404, "not_found", "names no session"},
		{"an id of another kind", "POST", Chat, good, say(func(b obj) { b["id"] = "generated-by-the-chat" }), 404, "not_found", "names no session"},
		{"a path that is not there", "GET", Path + "completion", good, nil, 404, "not_found", Chat},
		{"a method that is not there", "DELETE", Chat, good, nil, 405, "unknown_method", ""},
		{"a parameter", "GET", c.streamPath() + "?after=1", good, nil, 400, "bad_argument", ""},
		{"a body that is too large", "POST", Chat, good, c.say("u", strings.Repeat("x", 10_000)), 413, "too_large", ""},
		{"rubbish", "POST", Chat, good, "rubbish", 400, "malformed", ""},
		{"two values", "POST", Chat, good, `{"id":"` + c.ID + `"}{}`, 400, "malformed", ""},
		{"no messages", "POST", Chat, good, say(func(b obj) { delete(b, "messages") }), 400, "malformed", "messages"},
		{"an empty list", "POST", Chat, good, say(func(b obj) { b["messages"] = []obj{} }), 400, "bad_argument", "not the user's"},
		{"the assistant's", "POST", Chat, good, last(obj{"id": "a", "role": "assistant", "parts": []obj{}}), 400, "bad_argument", "not the user's"},
		{"no id", "POST", Chat, good, last(obj{"role": "user", "parts": []obj{{"type": "text", "text": "x"}}}), 400, "malformed", "no id"},
		{"no parts", "POST", Chat, good, parts(), 400, "bad_argument", "empty"},
		{"an empty text", "POST", Chat, good, parts(obj{"type": "text", "text": ""}), 400, "bad_argument", "empty"},
		{"a part of another type", "POST", Chat, good, parts(obj{"type": "data-place", "data": 1}), 400, "bad_argument", `"data-place"`},
		{"a file that is not there", "POST", Chat, good, parts(obj{"type": "file", "mediaType": "image/png", "url": "blob:x"}), 400, "bad_argument", "data:"},
		{"base64 that is none", "POST", Chat, good, parts(obj{"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,!"}), 400, "bad_argument", "data:"},
		{"another answer", "POST", Chat, good, say(func(b obj) { b["trigger"] = "regenerate-message" }), 400, "bad_argument", "send another message"},
		{"another trigger", "POST", Chat, good, say(func(b obj) { b["trigger"] = "x" }), 400, "bad_argument", "trigger"},
	} {
		status, text := r.Text(tc.method, tc.path, tc.ref, tc.body)
		if status != tc.status || !strings.HasSuffix(text, " ("+tc.code+")\n") || strings.Count(text, "\n") != 1 || !strings.Contains(text, tc.message) {
			t.Errorf("%s: %d %q", tc.name, status, text)
		}
		for _, ref := range []string{good, dead, wrong, other.Owner, r.Owner.Text()} {
			if _, secret, _ := strings.Cut(ref, "#"); strings.Contains(text, secret) {
				t.Errorf("%s: the answer has a secret: %s", tc.name, text)
			}
		}
	}
	if asked := c.Ask("GET", "sessions/"+c.ID+"/state?prefix=request/", c.Owner, nil)["entries"].([]any); len(asked) != 0 {
		t.Errorf("there is %v", asked)
	}
	for _, ref := range []string{good, dead, wrong, other.Owner, r.Owner.Text()} {
		if _, secret, _ := strings.Cut(ref, "#"); strings.Contains(r.Log.String(), secret) {
			t.Error("the log has a secret")
		}
	}
}

// Pages of other origins are refused, except those that the operator allows.
func TestOrigins(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, api *httpapi.Config) { api.Origins = []string{"app.example.org"} })
	for origin, want := range map[string]int{"https://app.example.org": 204, "https://evil.example.org": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, r.Base+Chat, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
		resp, err := r.HTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if allowed := resp.Header.Get("Access-Control-Allow-Headers"); resp.StatusCode != want || (want == 204) != strings.Contains(allowed, "authorization") {
			t.Errorf("%s: %d %v", origin, resp.StatusCode, resp.Header)
		}
	}
}
