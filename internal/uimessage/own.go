package uimessage

// Parts and messages that an export has written, as what they were. Whether they were is seen by writing them again.

import (
	"strings"
)

// decodeOwnHead returns the value of the message that was exported as u; nil if none was.
func decodeOwnHead(id string, u object) []byte {
	metadata, _ := u.object("metadata")
	mine, ok := metadata.object(own)
	if !ok {
		return nil
	}
	info := object{{"id", quote(id)}}
	info.put("sessionID", mine.get("sessionID"))
	if mine.get("role") == nil {
		info.put("role", u.get("role"))
	}
	payload := append(info, mine.without("id", "sessionID")...).bytes()
	if head, _ := messageHead(id, payload); !equal(head.bytes(), u.without("parts").bytes()) {
		return nil
	}
	return payload
}

// ownID returns the id of the session's part that a part was exported from, which may be followed by another of the same; "" if it
// names none. What is called data-… has an id of its own, which is one only in an exported message.
func ownID(parts [][]byte, exported bool) string {
	u, _ := parse(parts[0])
	kind := u.text("type")
	id := ""
	switch {
	case kind == "text" || kind == "reasoning" || kind == "file":
		mine, _ := inner(u, "providerMetadata")
		id = mine.text("id")
	case kind == "dynamic-tool":
		mine, _ := inner(u, "toolMetadata")
		id = mine.text("id")
	case kind == "step-start" && len(parts) > 1:
		if next, _ := parse(parts[1]); next.text("type") == stepPart {
			id = next.text("id")
		}
	case strings.HasPrefix(kind, "data-") && exported:
		id = u.text("id")
	}
	if !isID(id) {
		return ""
	}
	return id
}

// inner returns what an export has added to the metadata of a part.
func inner(u object, name string) (mine, others object) {
	others, _ = u.object(name)
	mine, _ = others.object(own)
	return mine, others.without(own)
}

// decodeOwn returns the value of the part of a session that was exported as the first n of parts; n is 0 if none was.
func (of context) decodeOwn(message, id string, parts [][]byte) (payload []byte, n int) {
	u, _ := parse(parts[0])
	kind := u.text("type")
	p := object{{"id", quote(id)}}
	add := func(kind string, values, mine object) {
		if mine.get("sessionID") == nil && of.session != "" {
			p.putText("sessionID", of.session)
		}
		p.put("sessionID", mine.get("sessionID"))
		p.putText("messageID", message)
		if kind != "" {
			p.putText("type", kind)
		}
		p = append(append(p, values...), mine.without("id", "messageID", "sessionID")...)
	}
	n = 1
	switch {
	case kind == "text" || kind == "reasoning" || kind == "file":
		mine, others := inner(u, "providerMetadata")
		var values object
		values.put("text", u.get("text"))
		values.put("mime", u.get("mediaType"))
		values.put("filename", u.get("filename"))
		values.put("url", u.get("url"))
		if len(others) > 0 {
			values.put("metadata", others.bytes())
		}
		add(kind, values, mine)
	case kind == "dynamic-tool":
		n = of.decodeOwnTool(u, parts, add)
	case kind == "step-start":
		next, _ := parse(parts[1])
		data, _ := next.object("data")
		add(kind, nil, data)
		n = 2
	default:
		data, ok := u.object("data")
		if !ok {
			return nil, 0
		}
		add(strings.TrimPrefix(kind, "data-"), nil, data)
	}
	payload = p.bytes()
	again := of.encodePart(id, payload)
	for i, text := range again {
		if len(again) != n || !equal(text, parts[i]) {
			return nil, 0
		}
	}
	return payload, n
}

// decodeOwnTool adds what the part u of a tool, and what follows it, has of the session's part, and returns how many of parts that is.
func (of context) decodeOwnTool(u object, parts [][]byte, add func(kind string, values, mine object)) (n int) {
	mine, _ := inner(u, "toolMetadata")
	rest, _ := mine.object("state")
	name := mine.text("diff")
	var state object
	if rest.get("status") == nil {
		state.putText("status", toolStatus[u.text("state")])
	}
	state.put("input", u.get("input"))
	state.put("raw", u.get("rawInput"))
	if output := u.get("output"); string(output) != "null" {
		state.put("output", output)
	}
	if rest.get("error") == nil {
		state.put("error", u.get("errorText"))
	}
	state.put("title", u.get("title"))
	state = append(state, rest.without("status", "metadata")...)
	state.put("status", rest.get("status"))
	n = 1
	if metadata, ok := rest.object("metadata"); ok {
		if name != "" && len(parts) > 1 {
			next, _ := parse(parts[1])
			data, _ := next.object("data")
			files := data.get("files")
			if name != "files" {
				if list, _ := elements(files); len(list) == 1 {
					files = list[0]
				}
			}
			metadata.put(name, files)
			n = 2
		}
		state.put("metadata", metadata.bytes())
	} else {
		state.put("metadata", rest.get("metadata"))
	}
	p := object{{"callID", u.get("toolCallId")}, {"tool", u.get("toolName")}}
	p.put("state", state.bytes())
	p.put("metadata", u.get("callProviderMetadata"))
	add("tool", p, mine.without("diff", "state"))
	return n
}
