package acp

// Changes of objects that are passed on: what is not changed stays as it is, known or not.

import (
	"bytes"
	"encoding/json"
)

// With returns an object with a member set to a value, or without it if the value is nil. What is no object counts as an
// empty one.
func With(object json.RawMessage, name string, value any) json.RawMessage {
	var text json.RawMessage
	if value != nil {
		text = encodeValue(value)
	}
	out, found := edit(object, name, text)
	if found || text == nil {
		return out
	}
	comma := ","
	if len(out) == len("{}") {
		comma = ""
	}
	return append(append(out[:len(out)-1], comma+string(encodeValue(name))+":"...), append(text, '}')...)
}

// SetSession returns params with another session's id, if they name a session.
func SetSession(params json.RawMessage, id string) json.RawMessage {
	if out, found := edit(params, "sessionId", encodeValue(id)); found {
		return out
	}
	return params
}

// SessionOf returns the id of the session that params name; "" if they name none.
func SessionOf(params json.RawMessage) string {
	p, err := Read[struct {
		ID json.RawMessage `json:"sessionId"`
	}](params)
	var id string
	if err != nil || json.Unmarshal(p.ID, &id) != nil {
		return ""
	}
	return id
}

// Member returns a member of an object; nil if it is not there, or null.
func Member(object json.RawMessage, name string) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil || !present(all[name]) {
		return nil
	}
	return all[name]
}

// edit returns an object with the value of a member replaced, or without the member if value is nil, and whether it was there.
func edit(object json.RawMessage, name string, value json.RawMessage) (out json.RawMessage, found bool) {
	out = append(make(json.RawMessage, 0, len(object)+len(value)+len(name)+8), '{')
	in := json.NewDecoder(bytes.NewReader(object))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return append(out, '}'), false
	}
	for in.More() {
		key, err := in.Token()
		member, isText := key.(string)
		var text json.RawMessage
		if err != nil || !isText || in.Decode(&text) != nil {
			break // it was read as JSON before, so this does not happen
		}
		if member == name {
			found = true
			if text = value; text == nil {
				continue
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, encodeValue(member)...), ':'), text...)
	}
	return append(out, '}'), found
}
