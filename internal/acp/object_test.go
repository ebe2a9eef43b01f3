package acp

import (
	"encoding/json"
	"testing"
)

func TestObjectsArePassedOnAsTheyAre(t *testing.T) {
	const params = `{ "sessionId" : "theirs" , "n":1e400,"big":12345678901234567890, "x":{"sessionId":"inner","b":[1, 2]}, "s":"<&\u2028\u00e4","nul":null }`
	for got, want := range map[string]string{
		string(SetSession(json.RawMessage(params), "ours")):                              `{"sessionId":"ours","n":1e400,"big":12345678901234567890,"x":{"sessionId":"inner","b":[1, 2]},"s":"<&\u2028\u00e4","nul":null}`,
		string(SetSession(json.RawMessage(`{"a":1}`), "ours")):                           `{"a":1}`,
		string(SetSession(json.RawMessage(`{"sessionId":7}`), "ours")):                   `{"sessionId":"ours"}`,
		string(SetSession(nil, "ours")):                                                  ``,
		string(With(json.RawMessage(`{"a":1,"sessionId":"x","b":2}`), "sessionId", nil)): `{"a":1,"b":2}`,
		string(With(json.RawMessage(`{}`), "a", 1)):                                      `{"a":1}`,
		string(With(json.RawMessage(`{"b":true}`), "a", "<")):                            `{"b":true,"a":"<"}`,
		string(With(nil, "a", json.RawMessage("{}"))):                                    `{"a":{}}`,
		string(With(json.RawMessage(`[1]`), "a", nil)):                                   `{}`,
		string(With(json.RawMessage(`{"a":1,"a":2}`), "a", 3)):                           `{"a":3,"a":3}`,
		string(Member(json.RawMessage(`{"a":{"b":1}}`), "a")):                            `{"b":1}`,
		string(Member(json.RawMessage(`{"a":null}`), "a")):                               ``,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
