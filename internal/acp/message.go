package acp

// Messages of JSON-RPC, as lines.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/mooring-rpc/mooring/fault"
)

// Kind is what a message is.
type Kind int

// The kinds of messages.
const (
	Request      Kind = iota + 1 // wants an answer: Result or Refusal, with its ID
	Notification                 // wants none
	Response                     // answers a call
)

// Message is a message of an agent, or of an editor.
type Message struct {
	Kind   Kind
	ID     json.RawMessage // of a Request, as its sender wrote it
	Call   uint64          // of a Response: the number of the call that it answers; 0 if it is none of ours
	Method string          // of a Request or Notification
	Params json.RawMessage // of a Request or Notification; nil if there are none
	Result json.RawMessage // of a Response; nil if it is an Error
	Error  *Error          // of a Response
}

// Error is an error that an agent answers a call with.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Codes of errors.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeInvalidParams  = -32602
	CodeMethodNotFound = -32601
	CodeInternal       = -32603
	CodeAuthRequired   = -32000
	CodeNotFound       = -32002
)

// maxErrorText bounds what Error says, in bytes.
const maxErrorText = 2000

// Error returns the message, with what the data says if that is little.
func (e *Error) Error() string {
	text := e.Message
	var data struct{ Details, Message, Error string }
	if json.Unmarshal(e.Data, &data) == nil {
		for _, more := range []string{data.Details, data.Message, data.Error} {
			if more != "" && more != text {
				text += ": " + more
			}
		}
	}
	return fmt.Sprintf("%s (error %d)", clip(text, maxErrorText), e.Code)
}

// clip returns the beginning of a text, at most n bytes of whole characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:n]), nil)) + "…"
}

// ErrNoMessage is reported for a line that is no message.
var ErrNoMessage = errors.New("not a JSON-RPC message")

// maxID bounds the id of a request, in bytes: it is sent back.
const maxID = 1024

// Decode decodes a line. The error is ErrNoMessage, with the beginning of the line. Nothing of line is kept.
func Decode(line []byte) (Message, error) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  *Error          `json:"error"`
	}
	wrong := func() (Message, error) {
		return Message{}, fmt.Errorf("%w: %q", ErrNoMessage, fault.Clip(string(bytes.TrimSpace(line))))
	}
	if !bytes.HasPrefix(bytes.TrimLeft(line, " \t\r"), []byte("{")) || json.Unmarshal(line, &m) != nil || len(m.ID) > maxID {
		return wrong()
	}
	hasID := m.ID != nil && string(m.ID) != "null"
	switch {
	case m.Method != nil && hasID && (m.ID[0] == '"' || m.ID[0] == '-' || m.ID[0] >= '0' && m.ID[0] <= '9'):
		return Message{Kind: Request, ID: m.ID, Method: *m.Method, Params: m.Params}, nil
	case m.Method != nil && !hasID:
		return Message{Kind: Notification, Method: *m.Method, Params: m.Params}, nil
	case m.Method == nil && hasID && (m.Result != nil || m.Error != nil):
		call, _ := strconv.ParseUint(string(m.ID), 10, 64) // ours are numbers
		return Message{Kind: Response, Call: call, Result: m.Result, Error: m.Error}, nil
	case m.Method == nil && m.Error != nil: // the agent could not read what it answers
		return Message{Kind: Response, Error: m.Error}, nil
	}
	return wrong()
}

// outgoing is a message to an agent or an editor.
type outgoing struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// encode returns a message as a line, without its line feed. The parameters are this package's types, or JSON text that
// was read from JSON, so they marshal.
func encode(m outgoing) []byte {
	m.Version = "2.0"
	return encodeValue(m)
}

func encodeValue(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("acp: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Call returns a request; its number is from 1 on, and of this call alone.
func Call(number uint64, method string, params any) []byte {
	return withParams(outgoing{ID: strconv.AppendUint(nil, number, 10), Method: method}, params)
}

// withParams encodes a message with params. JSON text is taken as it is: what is passed on may be long.
func withParams(m outgoing, params any) []byte {
	text, ok := params.(json.RawMessage)
	if !ok || len(text) == 0 || bytes.ContainsRune(text, '\n') {
		m.Params = params
		return encode(m)
	}
	line := encode(m)
	return append(append(append(line[:len(line)-1], `,"params":`...), text...), '}')
}

// Notify returns a notification.
func Notify(method string, params any) []byte {
	return withParams(outgoing{Method: method}, params)
}

// Result returns the answer to a request.
func Result(id json.RawMessage, result any) []byte {
	return encode(outgoing{ID: id, Result: result})
}

// Refusal returns an error as the answer to a request.
func Refusal(id json.RawMessage, code int, message string) []byte {
	return Failure(id, &Error{Code: code, Message: message})
}

// Failure is Refusal with an error that another has answered.
func Failure(id json.RawMessage, err *Error) []byte { return encode(outgoing{ID: id, Error: err}) }

// PassedOn returns another's answer as the answer to a request.
func PassedOn(id json.RawMessage, answer Message) []byte {
	if answer.Error != nil {
		return Failure(id, answer.Error)
	}
	return Result(id, answer.Result)
}
