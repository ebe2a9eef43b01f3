//go:build unix

// Peers over Cap'n Web, and what tests do with them.

package node

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// object is a JavaScript object.
type object = map[string]any

// webClient is a peer over Cap'n Web.
type webClient struct {
	t    testing.TB
	conn *capnweb.Conn
	main *capnweb.Stub

	mu     sync.Mutex
	called map[string]bool // methods, by name
}

// calledMethod finds the method in a message of a call.
var calledMethod = regexp.MustCompile(`^\["(?:push|stream)",\["(?:pipeline|import)",-?\d+,\["(\w+)"\]`)

// note keeps the method of a message that is sent, if that is a call.
func (w *webClient) note(sent bool, message []byte) {
	if m := calledMethod.FindSubmatch(message); sent && m != nil {
		w.mu.Lock()
		w.called[string(m[1])] = true
		w.mu.Unlock()
	}
}

// dialWeb connects a peer over a pipe; it leaves when the test ends, or by leave.
func (r *rig) dialWeb() *webClient { return r.dialWebIn(r.t) }

// dialWebIn is dialWeb for a subtest.
func (r *rig) dialWebIn(t testing.TB) *webClient {
	near, far := capnweb.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.server.ServeCapnweb(far)
	}()
	w := newWebClient(t, near)
	t.Cleanup(func() {
		w.leave()
		<-served
	})
	return w
}

func newWebClient(t testing.TB, transport capnweb.Transport) *webClient {
	w := &webClient{t: t, called: map[string]bool{}}
	w.conn = capnweb.NewConn(transport, capnweb.Config{Limits: capnweb.Limits{MessageBytes: 64 << 20}, Trace: w.note})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = w.conn.Run(context.Background())
	}()
	w.main = w.conn.Main()
	t.Cleanup(func() {
		w.leave()
		<-ran
	})
	return w
}

func (w *webClient) leave() { w.conn.Close("test") }

// webFault is the server's fault in an error, where it is one; a TypeError stays as it is.
func webFault(err error) error {
	var e *capnweb.Error
	if !errors.As(err, &e) {
		return err
	}
	f, ok := fault.ParseReason(e.Message)
	if !ok {
		return err
	}
	if n, ok := e.Props["at"].(float64); ok {
		f.At = uint64(n)
	}
	if e.Name != "Error" || e.Props["code"] != float64(f.Code) || e.Props["codeName"] != f.Code.String() {
		return fmt.Errorf("an error of name %s and properties %v says %q", e.Name, e.Props, e.Message)
	}
	return f
}

// awaitWeb waits for what a call came to.
func awaitWeb(t testing.TB, p *capnweb.Promise) (any, error) {
	t.Helper()
	v, err := p.Await(within(t))
	return v, webFault(err)
}

// ask calls and waits; the promise is kept, so that stubs in the result live as long as the connection.
func (w *webClient) ask(to interface {
	Call(context.Context, string, ...any) *capnweb.Promise
}, method string, args ...any) (any, error) {
	w.t.Helper()
	return awaitWeb(w.t, to.Call(within(w.t), method, args...))
}

// give is ask, which is not refused.
func (w *webClient) give(to interface {
	Call(context.Context, string, ...any) *capnweb.Promise
}, method string, args ...any) any {
	w.t.Helper()
	v, err := w.ask(to, method, args...)
	if err != nil {
		w.t.Fatalf("%s: %v", method, err)
	}
	return v
}

func refText(ref capability.Ref) string { return ref.Text() }

// restore gives the live object of a ref, before it is there.
func (w *webClient) restore(ref capability.Ref) *capnweb.Promise {
	return w.main.Call(within(w.t), "restore", refText(ref), "redemption of "+w.t.Name()[:min(len(w.t.Name()), 30)])
}

// open opens an outbox's stream, before it is there.
func (w *webClient) open(sess interface {
	Call(context.Context, string, ...any) *capnweb.Promise
}, b *box) *capnweb.Promise {
	return sess.Call(within(w.t), "openStream", object{"outbox": b.id, "secret": base64.RawURLEncoding.EncodeToString(b.secret), "incarnation": b.incarnation})
}

// webMade is a session that was made over the web, and how to speak to it.
type webMade struct {
	id           string
	owner        capability.Ref
	sess, stream *capnweb.Promise
	box          *box
}

// createWeb makes a session with one batch.
func (r *rig) createWeb(w *webClient) *webMade {
	w.t.Helper()
	m := &webMade{id: capability.SessionPrefix + ulid.Make().String(), box: newBox()}
	m.owner = r.owner.New(m.id)
	m.sess = w.restore(r.owner).Call(within(w.t), "create", m.id, m.owner.ID)
	m.stream = w.open(m.sess, m.box)
	ack := w.must(m.stream, m.batch(op("create", "ref", m.owner.ID, "hash", hashText(m.owner.Secret))))
	if ack.outcomes[0].Status != ledger.Applied {
		w.t.Fatalf("create: %+v", ack.outcomes[0])
	}
	return m
}

func (m *webMade) batch(ops ...ledger.Intent) *ledger.Batch { return m.box.batch(m.id, ops...) }

// webBatch is a batch as a peer writes it.
func webBatch(b *ledger.Batch) object {
	ops := []any{}
	for _, in := range b.Ops {
		args := []any{}
		for _, a := range in.Args {
			arg := object{"name": a.Name}
			if a.Ref != nil {
				arg["ref"] = object{"op": a.Ref.Op, "path": a.Ref.Path}
			} else {
				arg["json"] = string(a.JSON)
			}
			args = append(args, arg)
		}
		deps := []any{}
		for _, d := range in.DependsOn {
			deps = append(deps, d)
		}
		o := object{"id": in.OpID, "seq": in.Seq, "method": in.Method, "args": args, "dependsOn": deps}
		if in.Expected.Set {
			o["expected"] = object{"cursor": in.Expected.Cursor}
		}
		ops = append(ops, o)
	}
	return object{"id": b.BatchID, "atomic": b.Atomic, "ackedThrough": b.AckedThrough, "ops": ops}
}

// apply sends a batch and waits for the reply.
func (w *webClient) apply(stream interface {
	Call(context.Context, string, ...any) *capnweb.Promise
}, b *ledger.Batch, with ...any) *reply {
	w.t.Helper()
	return readWebReply(w.t, stream.Call(within(w.t), "apply", webBatch(b), with))
}

// must is apply, which is not refused.
func (w *webClient) must(stream interface {
	Call(context.Context, string, ...any) *capnweb.Promise
}, b *ledger.Batch, with ...any) *reply {
	w.t.Helper()
	r := w.apply(stream, b, with...)
	if r.refusal != nil {
		w.t.Fatalf("apply was refused: %v", r.refusal)
	}
	return r
}

// number is a JavaScript number or bigint.
func number(v any) uint64 {
	switch v := v.(type) {
	case float64:
		return uint64(v)
	case *big.Int:
		return v.Uint64()
	}
	panic(fmt.Sprintf("%T is no number", v))
}

func readWebReply(t testing.TB, p *capnweb.Promise) *reply {
	t.Helper()
	v, err := awaitWeb(t, p)
	var f *fault.Error
	if errors.As(err, &f) {
		return &reply{refusal: f}
	}
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	defer p.Release()
	ack := v.(object)
	out := &reply{cursor: number(ack["cursor"]), applied: uint32(number(ack["applied"])), duplicates: uint32(number(ack["duplicates"])), rejected: uint32(number(ack["rejected"]))}
	for _, v := range ack["outcomes"].([]any) {
		o := v.(object)
		outcome := ledger.Outcome{OpID: o["op"].(string), Message: o["message"].(string), Cursor: number(o["cursor"]),
			Result: []byte(o["result"].(string)), Cause: o["cause"].(string), At: number(o["at"])}
		if code, ok := o["reason"].(object); ok {
			outcome.Reason = fault.Code(number(code["code"]))
		}
		for s := range ledger.BatchAborted + 1 {
			if s.String() == o["status"] {
				outcome.Status = s
			}
		}
		out.outcomes = append(out.outcomes, outcome)
		out.repeated = append(out.repeated, o["duplicate"].(bool))
	}
	return out
}

// webRecorder is a callback that keeps what it gets, in a recorder.
type webRecorder struct {
	*recorder
	calls []*capnweb.Call // that are held
}

func newWebRecorder() *webRecorder { return &webRecorder{recorder: newRecorder()} }

// Serve implements capnweb.Object: it is called as a function.
func (k *webRecorder) Serve(c *capnweb.Call) {
	k.take(c.Args()[0].(object))
	k.mu.Lock()
	held := k.hold
	if held {
		k.calls = append(k.calls, c)
	}
	k.mu.Unlock()
	if !held {
		c.Return(nil)
	}
}

// free answers what is held and holds nothing more.
func (k *webRecorder) free() {
	k.mu.Lock()
	held := k.calls
	k.hold, k.calls = false, nil
	k.mu.Unlock()
	for _, c := range held {
		c.Return(nil)
	}
}

func (k *webRecorder) take(call object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, v := range call {
		switch name {
		case "events":
			for _, v := range v.([]any) {
				e := v.(object)
				cursor := number(e["cursor"])
				text := fmt.Sprintf("%d %s %s", cursor, e["method"], e["key"])
				if e["hidden"] == true {
					text = fmt.Sprintf("%d hidden%s%s", cursor, e["method"], e["key"])
				}
				k.shown, k.cursors, k.bytes = append(k.shown, text), append(k.cursors, cursor), k.bytes+len(e["payload"].(string))
			}
		case "state":
			s := v.(object)
			for _, v := range s["entries"].([]any) {
				k.keys[v.(object)["key"].(string)] = v.(object)["payload"].(string)
			}
			for _, v := range s["turns"].([]any) {
				k.turns = append(k.turns, v.(object)["message"].(string))
			}
			k.pieces = append(k.pieces, len(s["entries"].([]any))+len(s["turns"].([]any)))
			k.stateAt, k.last = number(s["cursor"]), s["last"].(bool)
		case "ended":
			r := v.(object)
			k.ended = &fault.Error{Code: fault.Code(number(r["code"])), Message: r["message"].(string), At: number(r["at"])}
			if k.ended.Code.String() != r["name"] {
				k.ended = fault.Internal.With("the code's name is %v", r["name"])
			}
		}
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// same fails the test if two values are not equal.
func same(t testing.TB, label string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %s, want %s", label, asText(got), asText(want))
	}
}

func asText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%#v", v)
	}
	return string(text)
}
