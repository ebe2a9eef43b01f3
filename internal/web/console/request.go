// What a page sends and is answered.

package console

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// MaxRequest bounds a request's body, in bytes.
const MaxRequest = 256 << 10

// Request is an action as a page's script sends it.
type Request struct {
	ID string `json:"id"` // the action's: a ULID
	Do string `json:"do"` // which it is: a key of actions

	Message string `json:"message"` // of revert and fork: the message's id; of share: the only one
	Secret  string `json:"secret"`  // of the new ref
	Label   string `json:"label"`   // of the new ref, and so are the next
	Actor   string `json:"actor"`
	// What the new ref allows.
	Rights      []string `json:"rights"`
	Children    []string `json:"children"`   // rights in the sessions below
	ExpiresIn   uint64   `json:"expires_in"` // ms
	Redemptions uint32   `json:"redemptions"`
	ReadKeys    []string `json:"read_keys"`
	WriteKeys   []string `json:"write_keys"`
	AskKinds    []string `json:"ask_kinds"` // of requests
	AnswerKinds []string `json:"answer_kinds"`

	Ref      string `json:"ref"`       // of revoke and cuts: its id; of cuts "": all
	TakeOver bool   `json:"take_over"` // of revoke and rotate
	Key      string `json:"key"`       // of purge

	Kind    string `json:"kind"`    // of ask
	Text    string `json:"text"`    // of ask and answer: what is said; "" for nothing
	Request string `json:"request"` // of answer and withdraw: its id; what is asked has the action's
	Choice  string `json:"choice"`  // of answer
	Shown   string `json:"shown"`   // of answer: the digest of what the card shows
}

// Answer is what has been done.
type Answer struct {
	Said    string `json:"said"`              // in words
	Session string `json:"session,omitempty"` // that was made

	// Of the ref that was made, with its secret: shown once.
	Ref  string `json:"ref,omitempty"`  // its text
	Link string `json:"link,omitempty"` // to its page
	QR   string `json:"qr,omitempty"`   // the link as a picture's address

	Cuts []Cut `json:"cuts,omitempty"` // the refs that a revoke would end
	More bool  `json:"more,omitempty"` // there are more of them
}

// Cut is a ref that would end.
type Cut struct {
	Ref      string `json:"ref"`
	Label    string `json:"label"`
	Actor    string `json:"actor"`
	Rights   string `json:"rights"`
	Owner    bool   `json:"owner"`
	Uses     uint64 `json:"uses"`
	LastUsed int64  `json:"last_used"` // Unix ms
}

// Parse parses a request.
func Parse(body io.Reader) (*Request, *fault.Error) {
	text, err := io.ReadAll(io.LimitReader(body, MaxRequest+1))
	switch {
	case err != nil:
		return nil, fault.Malformed.With("the request did not arrive whole")
	case len(text) > MaxRequest:
		return nil, fault.TooLarge.With("the request is longer than %d bytes", MaxRequest)
	}
	r, lines := &Request{}, json.NewDecoder(bytes.NewReader(text))
	lines.DisallowUnknownFields()
	if err := lines.Decode(r); err != nil || lines.Decode(new(any)) != io.EOF {
		return nil, fault.Malformed.With("the request is not one JSON object of an action's members")
	}
	if id, err := ulid.ParseStrict(r.ID); err != nil || id.String() != r.ID {
		return nil, fault.BadArgument.With("an action's id is a ULID")
	}
	if actions[r.Do] == nil {
		return nil, fault.UnknownMethod.With("there is no action %q", fault.Clip(r.Do))
	}
	return r, nil
}

// newRef returns the ref to target that the request's secret makes.
func (r *Request) newRef(target string) (capability.Ref, error) {
	secret, err := capability.ParseSecret(r.Secret)
	if err != nil {
		return capability.Ref{}, err
	}
	return capability.Ref{}.With(capability.DeriveID(target, secret), secret), nil
}
