package uimessage

// What a UIMessage has to have, as the AI SDK's validateUIMessages sees it: far enough that everything else can be kept as it is.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// texts are the members of a part, by its type, that have to be strings.
var texts = map[string][]string{
	"text": {"text"}, "reasoning": {"text"}, "file": {"mediaType", "url"}, "reasoning-file": {"mediaType", "url"}, "custom": {"kind"},
	"source-url": {"sourceId", "url"}, "source-document": {"sourceId", "mediaType", "title"}, "steering-message": {"id"},
	"dynamic-tool": {"toolName", "toolCallId", "state"},
}

// toolStatus is the status of a tool's part in a session by the state that it has in a UIMessage.
var toolStatus = map[string]string{
	"input-streaming": "pending", "input-available": "running", "approval-requested": "pending", "approval-responded": "running",
	"output-available": "completed", "output-error": "error", "output-denied": "error",
}

// isTool reports whether a part of a type is a tool's.
func isTool(kind string) bool { return kind == "dynamic-tool" || strings.HasPrefix(kind, "tool-") }

// checkMessage checks a message, whose parts are checked apart.
func checkMessage(u object) *fault.Error {
	_, isList := elements(u.get("parts"))
	switch {
	case !isString(u.get("id")):
		return malformed("it has no id (a text)")
	case !slices.Contains(roles, u.text("role")):
		return malformed("its role is not system, user or assistant")
	case !isList && u.get("content") != nil:
		return malformed("it has content and no parts: it is of the AI SDK before version 5, whose migration guide says how to convert it")
	case !isList:
		return malformed("it has no parts (an array)")
	}
	return nil
}

// checkPart checks a part. What is of a type that the AI SDK does not know is good.
func checkPart(u object) *fault.Error {
	kind := u.text("type")
	if !isString(u.get("type")) {
		return malformed("it is not an object with a type (a text)")
	}
	wanted := texts[kind]
	if strings.HasPrefix(kind, "tool-") {
		wanted = []string{"toolCallId", "state"}
	}
	for _, name := range wanted {
		if !isString(u.get(name)) {
			return malformed("%s without its %s (a text)", fault.Clip(kind), name)
		}
	}
	if !isTool(kind) {
		return nil
	}
	state := u.text("state")
	switch {
	case toolStatus[state] == "":
		return malformed("%s has the state %q, which tools of a UIMessage do not have", fault.Clip(kind), fault.Clip(state))
	case state == "output-error" && !isString(u.get("errorText")):
		return malformed("%s without its errorText (a text)", fault.Clip(kind))
	}
	return nil
}

func malformed(format string, args ...any) *fault.Error { return fault.Malformed.With(format, args...) }
