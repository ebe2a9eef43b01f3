// The actions on a session's messages, and how an op is sent. access.go has the others.

package console

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Page is what an action is done on, and under.
type Page struct {
	On      *objects.Capability // the session, or the space
	Space   *objects.Capability // of which the browser has a page open too; nil if it has none
	Token   string              // the page's; nobody else knows it
	Address string              // at which the browser sees the server

	Assume func(ref string) *objects.Capability // returns a session under a ref that was made here
}

// action does one thing.
type action func(context.Context, *Page, *Request) (*Answer, error)

var actions = map[string]action{
	"revert":   revert,
	"unrevert": unrevert,
	"fork":     fork,
	"share":    share,
	"cuts":     cuts,
	"revoke":   revoke,
	"epoch":    bumpEpoch,
	"rotate":   rotate,
	"purge":    purge,
	"ask":      ask,
	"answer":   answer,
	"withdraw": withdraw,
}

// Do does what was asked for.
func Do(ctx context.Context, on *Page, r *Request) (*Answer, error) { return actions[r.Do](ctx, on, r) }

func revert(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	var got struct {
		Unchanged bool   `json:"unchanged"`
		Cursor    uint64 `json:"cursor"`
	}
	if err := on.send(ctx, r, &got, session.MethodRevert, arg("to", session.MessageKey(r.Message))); err != nil {
		return nil, err
	}
	if got.Unchanged {
		return &Answer{Said: "It was reverted to this message already."}, nil
	}
	return &Answer{Said: fmt.Sprintf("Reverted at cursor %d: the message and what comes after it is hidden.", got.Cursor)}, nil
}

func unrevert(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	var got struct {
		Cursor uint64 `json:"cursor"`
	}
	if err := on.send(ctx, r, &got, session.MethodUnrevert); err != nil {
		return nil, err
	}
	return &Answer{Said: fmt.Sprintf("Shown again from cursor %d on.", got.Cursor)}, nil
}

// forkPause is between two questions whether a large fork is there.
const forkPause = 200 * time.Millisecond

// fork makes a session that begins as this one up to a message. It needs the right to create in the space.
func fork(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	if on.Space == nil {
		return nil, fault.MissingRight.With("a fork is made in a space: open the space's sessions in this browser first, with a ref that may create")
	}
	id := capability.SessionPrefix + r.ID
	owner, err := r.newRef(id)
	if err != nil {
		return nil, err
	}
	source := on.On
	if capability.IsSpace(capability.Target(source.Ref())) {
		if source, err = on.reader(ctx, r); err != nil {
			return nil, err
		}
	}
	hash := owner.Secret.Hash()
	args := []ledger.Arg{arg("ref", owner.ID), arg("hash", base64.RawURLEncoding.EncodeToString(hash[:])), arg("source", source.Target()), arg("via", source.Ref())}
	for _, a := range [][2]string{{"message", r.Message}, {"label", r.Label}} { // always in this order: a repeat has the same digest
		if a[1] != "" {
			args = append(args, arg(a[0], a[1]))
		}
	}
	stream, err := on.Space.CreateStream(ctx, id, owner.ID, outboxID(r), on.outboxSecret(r), 1)
	if err == nil {
		err = apply(ctx, stream, r, nil, session.MethodFork, args, source)
	}
	for copying(err) && ctx.Err() == nil { // until it is copied, or the page goes
		select {
		case <-ctx.Done():
		case <-time.After(forkPause):
			err = apply(ctx, stream, r, nil, session.MethodFork, args, source)
		}
	}
	if source != on.On && !copying(err) && ctx.Err() == nil { // it is decided
		if _, failed := on.On.Revoke(ctx, source.Ref(), false); err == nil {
			err = failed
		}
	}
	if err != nil {
		return nil, err
	}
	return on.minted(&Answer{Said: "The new session is " + id + ".", Session: id}, owner, true)
}

// copying reports whether a fork waits until it is copied.
func copying(err error) bool {
	f, is := errors.AsType[*fault.Error](err)
	return is && f.Copying()
}

// reader returns the session under a ref of its own that only reads, as long as a fork may take: a fork's source is
// named by a ref of the session, and a page of a space has one of the space.
func (on *Page) reader(ctx context.Context, r *Request) (*objects.Capability, error) {
	secret, err := capability.SecretFrom(on.derive("fork", r))
	if err != nil {
		return nil, err
	}
	m := capability.MintRequest{ID: capability.DeriveID(on.On.Target(), secret), Hash: secret.Hash(), Rights: capability.Read,
		Lifetime: session.ForkPatience, Label: "fork " + r.ID}
	if err := on.On.Share(ctx, m); err != nil {
		return nil, err
	}
	return on.Assume(m.ID), nil
}

// send sends an op to the session as the only one of an outbox, and decodes its result.
func (on *Page) send(ctx context.Context, r *Request, result any, method string, args ...ledger.Arg) error {
	stream, err := on.On.OpenStream(ctx, outboxID(r), on.outboxSecret(r), 1)
	if err != nil {
		return err
	}
	return apply(ctx, stream, r, result, method, args)
}

// outboxID returns the id of an action's outbox, which is shown in events; outboxSecret its secret, which
// the page's token and the action make.
func outboxID(r *Request) string { return "page-" + r.ID }

func (on *Page) outboxSecret(r *Request) []byte { return on.derive("outbox", r) }

// derive returns 32 bytes for a purpose, which only who has the page's token can know.
func (on *Page) derive(purpose string, r *Request) []byte {
	sum := sha256.Sum256([]byte("mooring page " + purpose + " v1\x00" + on.Token + "\x00" + r.ID))
	return sum[:]
}

// apply sends an action's op, and returns why it was refused.
func apply(ctx context.Context, stream *objects.Stream, r *Request, result any, method string, args []ledger.Arg, with ...*objects.Capability) error {
	op := ledger.Intent{OpID: r.ID, Seq: 1, Method: method, Args: args}
	answer, err := stream.Apply(ctx, ledger.Batch{BatchID: r.ID, Ops: []ledger.Intent{op}}, with...)
	if err != nil {
		return err
	}
	o := answer.Outcomes[0]
	if o.Status != ledger.Applied {
		return &fault.Error{Code: o.Reason, Message: o.Message, At: o.At}
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(o.Result, result)
}

// arg returns an argument that is a text.
func arg(name, text string) ledger.Arg {
	json, _ := json.Marshal(text) // a string: cannot fail
	return ledger.Arg{Name: name, JSON: json}
}
