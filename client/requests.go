// Requests: what was asked in a session, and what became of it.

package client

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// RequestState is a state of a request.
type RequestState string

// The states of requests. Those after RequestClaimed are ends.
const (
	RequestOpen      = RequestState(session.RequestOpen)
	RequestClaimed   = RequestState(session.RequestClaimed)
	RequestAnswered  = RequestState(session.RequestAnswered)
	RequestWithdrawn = RequestState(session.RequestWithdrawn)
	RequestExpired   = RequestState(session.RequestExpired)
	RequestUnknown   = RequestState(session.RequestUnknown) // it was handed over, and nobody knows what came of it
)

// Ended reports whether nothing more becomes of a request in this state.
func (s RequestState) Ended() bool { return session.RequestState(s).Ended() }

// The kinds of requests that Mooring gives a meaning.
const (
	KindPrompt     = session.KindPrompt     // text for the session's agent, which gets it at most once
	KindStop       = session.KindStop       // ends the turn of a message
	KindPermission = session.KindPermission // may the agent do what is shown
	KindQuestion   = session.KindQuestion
)

// Request is a request of a session.
type Request struct {
	ID       string
	Kind     string
	Message  string          // id of the message whose turn it is about; "" for none
	Payload  json.RawMessage // what is asked
	Choices  []Choice        // among which an answer chooses; nil: any answer
	Digest   string          // SHA-256 of Payload, in hexadecimal
	Expires  time.Time       // zero: never
	AskedBy  string          // actor
	AskedRef string          // id of the ref that it was asked under
	AskedAt  time.Time
	Cursor   uint64 // of its last change

	State   RequestState
	Claim   *Claim          // while it is claimed
	Choice  string          // of its answer; "" for none
	Answer  json.RawMessage // payload of its answer; nil for none
	Reason  string          // why it was withdrawn, opened again, or is unknown; "" if nobody says
	By      string          // actor of its last change after it was asked; "" if that happened by itself
	ByRef   string          // id of the ref that it was made under
	Changed time.Time       // when; zero if there was none
}

// askedJSON and stateJSON are the values of the two keys of a request.
type (
	actorJSON struct {
		Ref   string `json:"ref"`
		Actor string `json:"actor"`
	}
	askedJSON struct {
		Kind    string          `json:"kind"`
		Message string          `json:"message"`
		Digest  string          `json:"digest"`
		Expires int64           `json:"expires_at"`
		By      actorJSON       `json:"by"`
		At      int64           `json:"at"`
		Choices []Choice        `json:"choices"`
		Payload json.RawMessage `json:"payload"`
	}
	stateJSON struct {
		State   RequestState    `json:"state"`
		Claim   uint64          `json:"claim"`
		Outbox  string          `json:"outbox"`
		Worker  string          `json:"worker"`
		Until   int64           `json:"until"`
		Choice  string          `json:"choice"`
		Reason  string          `json:"reason"`
		By      actorJSON       `json:"by"`
		At      int64           `json:"at"`
		Payload json.RawMessage `json:"payload"`
	}
)

// asked sets what was asked; the value is as it was read.
func (r *Request) asked(cursor uint64, value []byte) error {
	var v askedJSON
	if err := json.Unmarshal(value, &v); err != nil {
		return fault.Malformed.Because(err, "request %s cannot be read", r.ID)
	}
	r.Kind, r.Message, r.Digest, r.Expires, r.Payload, r.Choices = v.Kind, v.Message, v.Digest, timeOf(v.Expires), v.Payload, v.Choices
	r.AskedBy, r.AskedRef, r.AskedAt, r.Cursor = v.By.Actor, v.By.Ref, timeOf(v.At), max(r.Cursor, cursor)
	return nil
}

// became sets what became of the request.
func (r *Request) became(cursor uint64, value []byte) error {
	var v stateJSON
	if err := json.Unmarshal(value, &v); err != nil {
		return fault.Malformed.Because(err, "the state of request %s cannot be read", r.ID)
	}
	r.State, r.Choice, r.Answer, r.Reason = v.State, v.Choice, v.Payload, v.Reason
	r.By, r.ByRef, r.Changed, r.Cursor, r.Claim = v.By.Actor, v.By.Ref, timeOf(v.At), cursor, nil
	if v.State == RequestClaimed {
		r.Claim = &Claim{Cursor: v.Claim, Until: timeOf(v.Until), Outbox: v.Outbox, Worker: v.Worker, Ref: v.By.Ref, Actor: v.By.Actor}
	}
	return nil
}

// requests are the requests of a session that were read and followed, by id.
type requests map[string]*Request

// change changes the request that a key is about; nil if the key is none of a request, or what it asks is not known. A value
// of no bytes is one that was purged.
func (of requests) change(key string, cursor uint64, value []byte) (*Request, error) {
	id, state, ok := session.RequestOf(key)
	switch r := of[id]; {
	case !ok || r == nil && state: // of one whose question the ref does not show
		return nil, nil
	case len(value) == 0:
		if !state {
			delete(of, id)
		}
		return nil, nil
	case state:
		return r, r.became(cursor, value)
	default:
		r = &Request{ID: id, State: RequestOpen}
		if err := r.asked(cursor, value); err != nil {
			return nil, err
		}
		of[id] = r
		return r, nil
	}
}

// Requests returns the state's requests, in the order in which they were asked.
func (s *State) Requests() ([]*Request, error) {
	of := requests{}
	var list []*Request
	for _, e := range s.Entries { // what is asked comes before what became of it
		_, known := of[e.Key]
		r, err := of.change(e.Key, e.Cursor, e.Payload)
		switch {
		case err != nil:
			return nil, err
		case r != nil && !known && r.State == RequestOpen && session.RequestKey(r.ID) == e.Key:
			list = append(list, r)
		}
	}
	return list, nil
}

// RequestOptions select requests. The zero value is all that are open or claimed.
type RequestOptions struct {
	ID    string   // only this one; "": all
	Kinds []string // only these kinds; nil: all
	Ended bool     // those that have ended, too

	// Trouble, if not nil, is called by FollowRequests with each error that is retried, as that of SubscribeOptions.
	Trouble func(error)
}

func (o *RequestOptions) keys() []string {
	if o.ID == "" {
		return []string{session.RequestKey("")}
	}
	return []string{session.RequestKey(o.ID), session.RequestStateKey(o.ID)}
}

func (o *RequestOptions) has(r *Request) bool {
	return (o.Ended || !r.State.Ended()) && (len(o.Kinds) == 0 || slices.Contains(o.Kinds, r.Kind))
}

// ListRequests yields the session's present requests, in the order in which they were asked. It takes the right read.
func (s *Session) ListRequests(ctx context.Context, o RequestOptions) iter.Seq2[*Request, error] {
	return func(yield func(*Request, error) bool) {
		state, err := s.SnapshotWith(ctx, SnapshotOptions{Keys: o.keys()})
		var list []*Request
		if err == nil {
			list, err = state.Requests()
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for _, r := range list {
			if o.has(r) && !yield(r, nil) {
				return
			}
		}
	}
}

// FollowRequests is ListRequests, and goes on with each request that has changed, those that have ended among them, over
// lost connections, until ctx ends. The error that it yields last is Subscribe's.
func (s *Session) FollowRequests(ctx context.Context, o RequestOptions) iter.Seq2[*Request, error] {
	return s.yieldRequests(ctx, &o, func() func(*Request) bool {
		seen := map[string]bool{}
		return func(r *Request) bool {
			if !o.has(r) && !seen[r.ID] {
				return false
			}
			if seen[r.ID] = true; r.State.Ended() {
				delete(seen, r.ID)
			}
			return true
		}
	})
}

// yieldRequests yields what followRequests handles and wants says, which is made anew for each loop.
func (s *Session) yieldRequests(ctx context.Context, o *RequestOptions, wants func() func(*Request) bool) iter.Seq2[*Request, error] {
	return func(yield func(*Request, error) bool) {
		wanted, stopped := wants(), false
		err := s.followRequests(ctx, o, func(r *Request) error {
			if !wanted(r) {
				return nil
			}
			if now := *r; !yield(&now, nil) {
				stopped = true
				return fault.Canceled
			}
			return nil
		})
		if !stopped {
			yield(nil, err)
		}
	}
}

// followRequests calls handle with the requests of o's keys as they are, in order, and then with each that has changed, until
// handle returns an error.
func (s *Session) followRequests(ctx context.Context, o *RequestOptions, handle func(*Request) error) error {
	keys, of := o.keys(), requests{}
	read := func(state *State) error {
		list, err := state.Requests()
		clear(of)
		for _, r := range list {
			of[r.ID] = r
		}
		for _, r := range list {
			if err == nil {
				err = handle(r)
			}
		}
		return err
	}
	var state *State
	for wait := s.client.cfg.newBackOff(); state == nil; {
		var err error
		switch state, err = s.SnapshotWith(ctx, SnapshotOptions{Keys: keys}); {
		case err == nil:
		case !fault.CodeOf(err).Transient() || ctx.Err() != nil:
			return err
		default:
			if o.Trouble != nil {
				o.Trouble(err)
			}
			timer := time.NewTimer(wait.NextBackOff())
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		}
	}
	if err := read(state); err != nil {
		return err
	}
	return s.Subscribe(ctx, SubscribeOptions{After: state.Cursor, Hash: state.Hash, Keys: keys, StartOver: read, Trouble: o.Trouble}, func(e Event) error {
		if e.Hidden {
			return nil
		}
		r, err := of.change(e.Key, e.Cursor, e.Payload)
		if err != nil || r == nil {
			return err
		}
		return handle(r)
	})
}

// Requests yields the session's requests of some kinds, or of all, that this client may work on: each that is open, in the
// order in which they were asked, and each that another asks from then on, until ctx ends. One that is claimed
// by this client's outbox when it begins, as by a process before this one, is yielded too (Request.Claim): to go on with
// it, end it or give it back. What is open again after a claim is yielded again. Yielding one claims nothing: ClaimRequest does,
// and is a conflict for all but the first. It takes the right read. The error that it yields last is Subscribe's.
func (s *Session) Requests(ctx context.Context, kinds ...string) iter.Seq2[*Request, error] {
	return s.yieldRequests(ctx, &RequestOptions{}, func() func(*Request) bool {
		own := ""
		if s.client.box != nil {
			own = s.client.box.ID()
		}
		shown := map[string]uint64{} // by id: the cursor at which it was yielded last
		return func(r *Request) bool {
			mine := r.Claim != nil && own != "" && r.Claim.Outbox == own
			switch {
			case r.State.Ended():
				delete(shown, r.ID)
				return false
			case len(kinds) > 0 && !slices.Contains(kinds, r.Kind):
				return false
			case r.State == RequestOpen && shown[r.ID] == r.Cursor, r.State == RequestClaimed && (!mine || shown[r.ID] != 0):
				return false
			}
			shown[r.ID] = r.Cursor
			return true
		}
	})
}

// RequestTicket names a request of a session. Its session, ID and Batch can be saved and given to Session.RequestTicket in
// any later process.
type RequestTicket struct {
	session *Session
	ID      string
	Batch   string // that asked it; "": another client's, or it was asked long ago
}

// Ask makes a request, as Batch.Ask, and returns its ticket: the request is durable. It works without a server.
func (s *Session) Ask(ctx context.Context, kind string, payload any, o AskOptions) (RequestTicket, error) {
	b := s.Batch()
	id, _ := b.Ask(kind, payload, o)
	t, err := b.Commit(ctx)
	return s.RequestTicket(id, t.Batch), err
}

// RequestTicket returns the ticket of a request that was asked earlier, by any client. batch is "" if it is not known.
func (s *Session) RequestTicket(id, batch string) RequestTicket {
	return RequestTicket{session: s, ID: id, Batch: batch}
}

// Wait blocks until the request has ended, and returns it as it is then, over lost connections and restarts of the server,
// or until ctx ends. The error is that of the op if it was refused, or Subscribe's. It takes the right read.
func (t RequestTicket) Wait(ctx context.Context) (*Request, error) {
	if t.session == nil {
		return nil, fault.Usage.With("the ticket has no session: get tickets from Session.Ask or Session.RequestTicket")
	}
	if t.Batch != "" {
		results, err := t.session.client.Ticket(t.Batch).Wait(ctx)
		if err == nil {
			err = results.Err()
		}
		if err != nil {
			return nil, err
		}
	}
	var ended *Request
	err := t.session.followRequests(ctx, &RequestOptions{ID: t.ID}, func(r *Request) error {
		if !r.State.Ended() {
			return nil
		}
		ended = r
		return fault.Canceled
	})
	if ended != nil {
		return ended, nil
	}
	return nil, err
}
