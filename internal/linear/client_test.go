//go:build linear

package linear

// A client of a history: it works off its part of the plan, one call after the
// other, and keeps what it saw.
//
// A batch that gets no answer, or one that says to come again, is sent again as
// it is until it is answered: the ledger makes that one call, from when it was
// first made to when it was answered. Session.revoke has no ledger. One that
// may have been done and was not answered is lost, and may take effect at any
// time. What only reads is simply read again.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// client works in many histories, one after the other, over the same connections.
type client struct {
	number    int
	addresses []string
	peers     []*peer // by server; nil where there is none
}

func (c *client) close() {
	for _, p := range c.peers {
		if p != nil {
			p.close()
		}
	}
}

// peer gives the connection to a server.
func (c *client) peer(ctx context.Context, server int) (*peer, error) {
	if p := c.peers[server]; p != nil {
		if !p.over() {
			return p, nil
		}
		p.close()
		c.peers[server] = nil
	}
	p, err := connect(ctx, c.addresses[server])
	if err == nil {
		c.peers[server] = p
	}
	return p, err
}

// part is a client's part in one history.
type part struct {
	*client
	scene  *scene
	outbox string
	secret capability.Secret
	seq    uint64
	cursor uint64 // the last it heard of
	held   map[holding]*held
	saw    history
}

// holding is a ref on a server.
type holding struct{ ref, server int }

// held are the live objects of a ref on one connection.
type held struct {
	peer    *peer
	session *rpc.Ref
	stream  *rpc.Ref // nil until it is needed
}

func (h *held) release() {
	h.session.Release()
	h.stream.Release()
}

func newPart(c *client, s *scene) *part {
	return &part{client: c, scene: s, outbox: ulid.Make().String(), secret: capability.NewSecret(), cursor: 1, held: map[holding]*held{}}
}

func (p *part) release() {
	for _, h := range p.held {
		h.release()
	}
}

// errGone says that a ref could not be had: it is not minted yet.
var errGone = errors.New("the ref is not known yet")

// do makes a step's call. Its errors end the history: they are no answers.
func (p *part) do(ctx context.Context, st step) error {
	c := st.call
	for i := range c.batch.n {
		if o := &c.batch.ops[i]; o.compare {
			o.expected = p.cursor - min(uint64(st.behind), p.cursor-1)
		}
	}
	for try := 0; ; try++ {
		_, err := p.hold(ctx, holding{c.ref, st.server})
		switch {
		case err == nil:
			return p.call(ctx, c, st.server, st.sever)
		case !errors.Is(err, errGone):
			return err
		case try == 2:
			return nil // nobody has shared it; the rest of the plan goes on
		}
		pause(ctx, time.Duration(try+1)*time.Millisecond)
	}
}

// hold gives a ref's live object on a server. Restoring it is a call like others:
// it must succeed as soon as the ref is minted, on every replica.
func (p *part) hold(ctx context.Context, on holding) (*held, error) {
	if h := p.held[on]; h != nil {
		if !h.peer.over() {
			return h, nil
		}
		h.release()
		delete(p.held, on)
	}
	c := call{kind: callRestore, ref: on.ref}
	var got *held
	err := p.again(ctx, func() error {
		from := p.scene.now()
		peer, err := p.peer(ctx, on.server)
		if err != nil {
			return err
		}
		live, err := restoreOn(ctx, peer, p.scene.refs[on.ref])
		switch fault.CodeOf(err) {
		case fault.None:
			p.see(on.server, 1, c, answer{}, from)
			got = &held{peer: peer, session: live}
			p.held[on] = got
			return nil
		case fault.NotYetKnown, fault.UnknownRef:
			p.see(on.server, 1, c, answer{refused: fault.CodeOf(err)}, from)
			return errGone
		}
		return err
	})
	return got, err
}

// stream gives a live stream under a ref, opening it if need be.
func (p *part) stream(ctx context.Context, on holding) (*rpc.Ref, error) {
	h, err := p.hold(ctx, on)
	if err != nil {
		return nil, err
	}
	if h.stream == nil {
		h.stream, err = openStreamOn(ctx, h.session, p.outbox, p.secret)
	}
	return h.stream, err
}

// see keeps a call that is answered now.
func (p *part) see(server, attempts int, c call, a answer, from int64) {
	to := p.scene.now()
	if a.lost {
		to = never
	}
	p.saw = append(p.saw, seen{client: p.number, server: server, attempts: attempts, call: c, answer: a, from: from, to: to})
	p.cursor = max(p.cursor, a.cursor, a.cut)
}

// again has f make a call until its answer is not one that says to come again.
func (p *part) again(ctx context.Context, f func() error) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := f()
		if err == nil || !comesAgain(err) {
			return err
		}
		p.scene.retried(err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause(ctx, time.Duration(p.scene.random(int64(wait))))
	}
}

// comesAgain says that a call with this answer is to be made again.
func comesAgain(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && (f.Code.Transient() || f.Code == fault.Internal || f.Code == fault.Canceled ||
		f.Code == fault.Unsupported) // not yet in use, just after the start
}

// call makes one call and keeps it with its answer. severed has the connection
// broken while it is on its way.
func (p *part) call(ctx context.Context, c call, server int, severed bool) error {
	switch c.kind {
	case callApply:
		return p.apply(ctx, c, server, severed)
	case callRevoke, callBump:
		return p.revoke(ctx, c, server, severed)
	}
	return p.again(ctx, func() error {
		from := p.scene.now()
		h, err := p.hold(ctx, holding{c.ref, server})
		if err != nil {
			return err
		}
		a, err := p.read(ctx, c, h.session)
		if f := (*fault.Error)(nil); errors.As(err, &f) && !comesAgain(err) {
			a, err = answer{refused: f.Code, at: f.At}, nil
		}
		if err == nil {
			p.see(server, 1, c, a, from)
		}
		return err
	})
}

func (p *part) read(ctx context.Context, c call, live *rpc.Ref) (a answer, err error) {
	if c.kind == callDescribe {
		return a, describeOn(ctx, live, func(s wire.SessionInfo, g wire.GrantInfo) {
			a = answer{cursor: s.Cursor(), epoch: s.Epoch(), dead: fault.Code(g.Dead()), cut: g.Cut(), minted: g.Epoch()}
		})
	}
	return a, eventsOn(ctx, live, func(cursor uint64, list wire.Event_List) error {
		a.cursor = cursor
		for i := range list.Len() {
			line, err := p.scene.line(list.At(i))
			if err != nil {
				return err
			}
			a.log += line
		}
		return nil
	})
}

// revoke is Session.revoke.
func (p *part) revoke(ctx context.Context, c call, server int, severed bool) error {
	return p.again(ctx, func() error {
		h, err := p.hold(ctx, holding{c.ref, server})
		if err != nil {
			return err
		}
		if severed {
			severed = false
			defer p.sever(server)()
		}
		from := p.scene.now()
		cut, epoch, refused, err := revokeOn(ctx, h.session, p.scene.refs[c.target].ID, c.kind == callBump)
		if err == nil && refused != nil && (refused.Code == fault.Overloaded || refused.Code == fault.Draining) {
			return refused // it was not even begun
		}
		a := answer{cut: cut, epoch: epoch}
		switch {
		case err == nil && refused == nil:
		case err == nil && !comesAgain(refused):
			a = answer{refused: refused.Code, at: refused.At}
		case err == nil: // it failed, and perhaps in the very commit
			a = answer{lost: true}
			p.scene.retried(refused)
		case comesAgain(err):
			a = answer{lost: true}
			p.scene.retried(err)
		default:
			return err
		}
		p.see(server, 1, c, a, from)
		return nil
	})
}

// apply sends a batch until it is answered, to another server each time.
func (p *part) apply(ctx context.Context, c call, server int, severed bool) error {
	b := p.batch(c)
	from, attempts := p.scene.now(), 0
	err := p.again(ctx, func() error {
		at := (server + attempts) % len(p.addresses)
		attempts++
		live, err := p.stream(ctx, holding{c.ref, at})
		if err != nil {
			return err
		}
		if severed {
			severed = false
			defer p.sever(at)()
		}
		return applyOn(ctx, live, b, func(ack wire.Ack) error {
			a, err := readAck(ack, b, c.batch)
			if err == nil {
				p.see(at, attempts, c, a, from)
				p.seq += uint64(len(b.Ops))
			}
			return err
		})
	})
	if err != nil { // the history ends here, and is looked at all the same
		p.see(server, attempts, c, answer{lost: true}, from)
	}
	return err
}

// sever breaks the connection to a server soon, mostly very soon, since answers
// come soon too; the function it gives calls that off.
func (p *part) sever(server int) (stop func() bool) {
	conn := p.peers[server].conn
	soon := p.scene.random(1 + p.scene.random(int64(3*time.Millisecond)))
	return time.AfterFunc(time.Duration(soon), func() { conn.Close("severed") }).Stop
}

// batch is a call's batch as it travels.
func (p *part) batch(c call) *ledger.Batch {
	b := &ledger.Batch{BatchID: ulid.Make().String(), Atomic: c.batch.atomic}
	for i, o := range c.batch.ops[:c.batch.n] {
		in := ledger.Intent{OpID: ulid.Make().String(), Seq: p.seq + uint64(i) + 1, Expected: ledger.Expect{Set: o.compare, Cursor: o.expected}}
		arg := func(name string, value any) { in.Args = append(in.Args, argument(name, value)) }
		target := p.scene.refs[o.target]
		switch o.kind {
		case opPut:
			in.Method = "put"
			arg("key", keyOf(o.key))
			arg("payload", map[string]int{"v": o.value})
		case opShare:
			in.Method = "share"
			hash := target.Secret.Hash()
			arg("ref", target.ID)
			arg("hash", base64.RawURLEncoding.EncodeToString(hash[:]))
			arg("rights", o.rights.Names())
		case opRevoke:
			in.Method = "revoke"
			arg("ref", target.ID)
		case opBump:
			in.Method = "bumpEpoch"
		case opRevert:
			in.Method = "revert"
			arg("to", keyOf(o.key))
		case opUnrevert:
			in.Method = "unrevert"
		}
		b.Ops = append(b.Ops, in)
	}
	return b
}

func argument(name string, value any) ledger.Arg {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts and numbers
	}
	return ledger.Arg{Name: name, JSON: text}
}

func keyOf(i int) string { return fmt.Sprintf("message/k%d", i) }

// readAck reads the answer to a batch.
func readAck(ack wire.Ack, b *ledger.Batch, sent batch) (answer, error) {
	a := answer{cursorKnown: true, cursor: ack.Cursor()}
	list, err := ack.Outcomes()
	if err != nil || list.Len() != len(b.Ops) {
		return a, fmt.Errorf("%d outcomes to %d ops: %w", list.Len(), len(b.Ops), err)
	}
	for i := range b.Ops {
		w, o := list.At(i), &a.outcomes[i]
		id, err1 := w.Op()
		message, err2 := w.Message_()
		result, err3 := w.Result()
		cause, err4 := w.Cause()
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return a, err
		}
		if id != b.Ops[i].OpID {
			return a, fmt.Errorf("outcome %d is of op %s and not of %s", i+1, id, b.Ops[i].OpID)
		}
		a.cursorKnown = a.cursorKnown && !w.Duplicate()
		*o = outcome{status: ledger.Status(w.Status()), reason: fault.Code(w.Reason()), cursor: w.Cursor()}
		o.at = position(o.reason, message)
		for j := range b.Ops {
			if b.Ops[j].OpID == cause {
				o.cause = j + 1
			}
		}
		r := gjson.Parse(result)
		o.unchanged, o.cut, o.epoch = r.Get("unchanged").Bool(), r.Get("cut").Uint(), r.Get("epoch").Uint()
		if o.status == ledger.Applied && r.Get("cursor").Uint() != o.cursor {
			return a, fmt.Errorf("an outcome at cursor %d has the result %s", o.cursor, result)
		}
		if (sent.ops[i].kind == opPut || sent.ops[i].kind >= opRevert || o.status != ledger.Applied) && o.cut+o.epoch != 0 {
			return a, fmt.Errorf("an outcome of %s has the result %s", sent.ops[i], result)
		}
	}
	return a, nil
}

// position is the cut or the epoch that a denial's text names: as data, outcomes
// do not have it.
func position(why fault.Code, message string) (at uint64) {
	switch why {
	case fault.Revoked:
		_, text, _ := strings.Cut(message, "revoked at cursor ")
		_, _ = fmt.Sscanf(text, "%d", &at) // 0 where there is none, which is no answer of the model's
	case fault.StaleEpoch:
		_, text, _ := strings.Cut(message, "the session is at epoch ")
		_, _ = fmt.Sscanf(text, "%d", &at)
	}
	return at
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
