//go:build unix

// Outboxes, and how their batches travel over each of the three wires.

package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"strconv"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func hashText(s capability.Secret) string {
	h := s.Hash()
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// box is an outbox's identity and, for one stream, its last seq.
type box struct {
	id     string
	secret []byte
	seq    uint64
}

func newBox() *box {
	secret := sha256.Sum256([]byte(ulid.Make().String()))
	return &box{id: "obx_" + ulid.Make().String(), secret: secret[:]}
}

// op makes an intent; args are names and values in turn.
func op(method string, args ...any) ledger.Intent {
	in := ledger.Intent{OpID: ulid.Make().String(), Method: method}
	for i := 0; i < len(args); i += 2 {
		text, ok := args[i+1].(json.RawMessage)
		if !ok {
			text, _ = json.Marshal(args[i+1])
		}
		in.Args = append(in.Args, ledger.Arg{Name: args[i].(string), JSON: text})
	}
	return in
}

// batch gives ops the next seqs.
func (b *box) batch(session string, ops ...ledger.Intent) *ledger.Batch {
	out := &ledger.Batch{Session: session, Outbox: b.id, Incarnation: 1, BatchID: ulid.Make().String(), Ops: ops}
	for i := range ops {
		b.seq++
		ops[i].Seq = b.seq
	}
	return out
}

// acknowledgement is the body that acknowledges outcomes without a batch.
func (b *box) acknowledgement(through uint64) obj {
	return obj{"outbox": b.id, "secret": base64.RawURLEncoding.EncodeToString(b.secret), "incarnation": 1, "acked_through": through}
}

// json is a batch as it goes over HTTP, its values as they are where that keeps their bytes.
func (b *box) json(batch *ledger.Batch) json.RawMessage {
	return b.jsonWith(batch, func(ledger.Arg) bool { return true })
}

// jsonWith has those arguments as values of the body that inline says, if their text can be one.
func (b *box) jsonWith(batch *ledger.Batch, inline func(ledger.Arg) bool) json.RawMessage {
	ops := []json.RawMessage{}
	for _, in := range batch.Ops {
		args := []json.RawMessage{}
		for _, a := range in.Args {
			switch {
			case a.Ref != nil:
				args = append(args, httpkit.JSON(obj{"name": a.Name, "ref": obj{"op": a.Ref.Op, "path": a.Ref.Path}}))
			case inline(a) && json.Valid(a.JSON) && bytes.Equal(bytes.TrimSpace(a.JSON), a.JSON):
				args = append(args, addMember(httpkit.JSON(obj{"name": a.Name}), "value", a.JSON))
			default:
				args = append(args, httpkit.JSON(obj{"name": a.Name, "json": string(a.JSON)}))
			}
		}
		o := obj{"op_id": in.OpID, "seq": in.Seq, "method": in.Method}
		if len(in.DependsOn) > 0 {
			o["depends_on"] = in.DependsOn
		}
		if in.Expected.Set {
			o["expected_cursor"] = strconv.FormatUint(in.Expected.Cursor, 10)
		}
		ops = append(ops, addMember(httpkit.JSON(o), "args", array(args)))
	}
	return addMember(httpkit.JSON(obj{"outbox": b.id, "secret": base64.RawURLEncoding.EncodeToString(b.secret), "incarnation": 1,
		"batch_id": batch.BatchID, "atomic": batch.Atomic, "acked_through": batch.AckedThrough}), "ops", array(ops))
}

// jsonAll is the body of several batches.
func (b *box) jsonAll(inline func(ledger.Arg) bool, batches ...*ledger.Batch) json.RawMessage {
	sender := httpkit.JSON(obj{"outbox": b.id, "secret": base64.RawURLEncoding.EncodeToString(b.secret), "incarnation": 1})
	list := make([]json.RawMessage, len(batches))
	for i, batch := range batches {
		list[i] = bytes.Replace(b.jsonWith(batch, inline), append([]byte{','}, sender[1:len(sender)-1]...), nil, 1)
	}
	return addMember(sender, "batches", array(list))
}

func array(of []json.RawMessage) []byte {
	b := []byte{'['}
	for i, v := range of {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// applyReply is an ack, or a refusal, as any wire gives it.
type applyReply struct {
	refusal    fault.Code
	duplicates uint64
	outcomes   []ledger.Outcome // without their digests
}

// overHTTP sends over HTTP.
func (r *rig) overHTTP(ref capability.Ref, b *box, inline func(ledger.Arg) bool) func(*ledger.Batch) applyReply {
	return func(batch *ledger.Batch) applyReply {
		several := inline(ledger.Arg{})
		body := b.jsonWith(batch, inline)
		if several {
			body = b.jsonAll(inline, batch)
		}
		got := r.ask("POST", "/sessions/"+batch.Session+"/batches", ref.Text(), body)
		if got.status != 200 {
			code, _ := fault.ParseCode(got.code())
			if code == fault.None || got.status != code.HTTPStatus() {
				r.t.Fatalf("%d %s", got.status, got.text)
			}
			return applyReply{refusal: code}
		}
		if several {
			got.json = got.json["answers"].([]any)[0].(obj)
			got.text = bytes.TrimSuffix(bytes.TrimPrefix(got.text, []byte(`{"answers":[`)), []byte(`]}`))
		}
		out := applyReply{duplicates: wholeOf(got.json["duplicates"])}
		var raw struct {
			Outcomes []struct {
				OpID          string `json:"op_id"`
				Status, Cause string
				Cursor        uint64
				Result        json.RawMessage
				Error         *errorJSON
			}
		}
		if err := json.Unmarshal(got.text, &raw); err != nil {
			r.t.Fatal(err)
		}
		for _, o := range raw.Outcomes {
			one := ledger.Outcome{OpID: o.OpID, Status: ledger.ParseStatus(o.Status), Cursor: o.Cursor, Cause: o.Cause, Result: append([]byte(nil), o.Result...)}
			if o.Error != nil {
				one.Reason, one.Message, one.At = fault.Code(o.Error.Number), o.Error.Message, o.Error.At
				if one.Reason.String() != o.Error.Code {
					r.t.Fatalf("%+v", o.Error)
				}
			}
			out.outcomes = append(out.outcomes, one)
		}
		return out
	}
}

func wholeOf(v any) uint64 {
	switch v := v.(type) {
	case json.Number:
		n, _ := strconv.ParseUint(v.String(), 10, 64)
		return n
	case float64:
		return uint64(v)
	case *big.Int:
		return v.Uint64()
	}
	return 1<<64 - 1
}

// size is that of a struct of data words and pointers.
func size(data capnp.Size, ptrs uint16) capnp.ObjectSize {
	return capnp.ObjectSize{DataSize: 8 * data, PointerCount: ptrs}
}

// capnpSession is what a ref restores over Cap'n Proto, on a connection of its own.
func (r *rig) capnpSession(t testing.TB, ref capability.Ref) *rpc.Ref {
	near, far := rpc.Pipe()
	served, ran := make(chan struct{}), make(chan struct{})
	go func() { defer close(served); _ = r.server.ServeConn(far) }()
	conn := rpc.NewConn(near, rpc.Config{})
	go func() { defer close(ran); _ = conn.Run(context.Background()) }()
	t.Cleanup(func() { conn.Close("test"); <-served; <-ran })
	return conn.Bootstrap(within(t)).Call(within(t), rpc.Method{Interface: wire.Gateway_TypeID, ID: 1}, size(0, 3), func(s capnp.Struct, _ *rpc.CapTable) error {
		w, err := wire.Gateway_restore_Params(s).NewRef()
		return errors.Join(err, w.SetId(ref.ID), w.SetSecret(ref.Secret.Reveal()))
	}).Cap(0)
}

// overCapnp sends over Cap'n Proto, on a stream of its own.
func (r *rig) overCapnp(t testing.TB, ref capability.Ref, b *box) func(*ledger.Batch) applyReply {
	stream := r.capnpSession(t, ref).Call(within(t), rpc.Method{Interface: wire.Session_TypeID, ID: 1}, size(1, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_openStream_Params(s)
		p.SetIncarnation(1)
		return errors.Join(p.SetOutbox(b.id), p.SetSecret(b.secret))
	}).Cap(0)
	return func(batch *ledger.Batch) applyReply {
		t.Helper()
		res, _, err := stream.Call(within(t), rpc.Method{Interface: wire.Stream_TypeID, ID: 0}, size(0, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
			w, err := wire.Stream_apply_Params(s).NewBatch()
			if err != nil {
				return err
			}
			return writeBatch(w, batch)
		}).Wait(within(t))
		if err != nil {
			t.Fatal(err)
		}
		reply, _ := wire.Stream_apply_Results(res).Reply()
		if reply.Which() == wire.ApplyReply_Which_refusal {
			f, _ := reply.Refusal()
			return applyReply{refusal: fault.Code(f.Code())}
		}
		ack, _ := reply.Ack()
		out := applyReply{duplicates: uint64(ack.Duplicates())}
		list, _ := ack.Outcomes()
		for i := range list.Len() {
			o := list.At(i)
			id, _ := o.Op()
			message, _ := o.Message_()
			result, _ := o.ResultBytes()
			cause, _ := o.Cause()
			out.outcomes = append(out.outcomes, ledger.Outcome{OpID: id, Status: ledger.Status(o.Status()), Reason: fault.Code(o.Reason()), Message: message,
				Cursor: o.Cursor(), Result: append([]byte(nil), result...), Cause: cause, At: o.At()})
		}
		return out
	}
}

func writeBatch(w wire.Batch, b *ledger.Batch) error {
	w.SetAtomic(b.Atomic)
	w.SetAckedThrough(b.AckedThrough)
	ops, err := w.NewOps(int32(len(b.Ops)))
	err = errors.Join(err, w.SetId(b.BatchID))
	for i := range b.Ops {
		in, o := &b.Ops[i], ops.At(i)
		o.SetSeq(in.Seq)
		err = errors.Join(err, o.SetId(in.OpID), o.SetMethod(in.Method))
		deps, derr := o.NewDependsOn(int32(len(in.DependsOn)))
		for j, id := range in.DependsOn {
			derr = errors.Join(derr, deps.Set(j, id))
		}
		if in.Expected.Set {
			o.Expected().SetCursor(in.Expected.Cursor)
		}
		args, aerr := o.NewArgs(int32(len(in.Args)))
		for j, a := range in.Args {
			to := args.At(j)
			aerr = errors.Join(aerr, to.SetName(a.Name))
			if a.Ref == nil {
				aerr = errors.Join(aerr, to.SetJson(string(a.JSON)))
				continue
			}
			ref, rerr := to.NewRef()
			aerr = errors.Join(aerr, rerr, ref.SetOp(a.Ref.Op), ref.SetPath(a.Ref.Path))
		}
		err = errors.Join(err, derr, aerr)
	}
	return err
}

// webSession is what a ref restores over Cap'n Web, on a connection of its own.
func (r *rig) webSession(t testing.TB, ref capability.Ref) *capnweb.Promise {
	near, far := capnweb.Pipe()
	served, ran := make(chan struct{}), make(chan struct{})
	go func() { defer close(served); _ = r.server.ServeCapnweb(far) }()
	conn := capnweb.NewConn(near, capnweb.Config{})
	go func() { defer close(ran); _ = conn.Run(context.Background()) }()
	t.Cleanup(func() { conn.Close("test"); <-served; <-ran })
	return conn.Main().Call(within(t), "restore", ref.Text())
}

// overWeb sends over Cap'n Web, on a stream of its own.
func (r *rig) overWeb(t testing.TB, ref capability.Ref, b *box) func(*ledger.Batch) applyReply {
	stream := r.webSession(t, ref).Call(within(t), "openStream", obj{"outbox": b.id, "secret": base64.RawURLEncoding.EncodeToString(b.secret), "incarnation": 1})
	return func(batch *ledger.Batch) applyReply {
		t.Helper()
		v, err := stream.Call(within(t), "apply", webBatch(batch)).Await(within(t))
		if e, ok := errors.AsType[*capnweb.Error](err); ok {
			if f, ok := fault.ParseReason(e.Message); ok {
				return applyReply{refusal: f.Code}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		ack := v.(obj)
		out := applyReply{duplicates: wholeOf(ack["duplicates"])}
		for _, v := range ack["outcomes"].([]any) {
			o := v.(obj)
			one := ledger.Outcome{OpID: o["op"].(string), Status: ledger.ParseStatus(o["status"].(string)), Message: o["message"].(string),
				Cursor: wholeOf(o["cursor"]), Result: append([]byte(nil), o["result"].(string)...), Cause: o["cause"].(string), At: wholeOf(o["at"])}
			if code, ok := o["reason"].(obj); ok {
				one.Reason = fault.Code(wholeOf(code["code"]))
			}
			out.outcomes = append(out.outcomes, one)
		}
		return out
	}
}

func webBatch(b *ledger.Batch) obj {
	ops := []any{}
	for _, in := range b.Ops {
		args, deps := []any{}, []any{}
		for _, a := range in.Args {
			if a.Ref != nil {
				args = append(args, obj{"name": a.Name, "ref": obj{"op": a.Ref.Op, "path": a.Ref.Path}})
			} else {
				args = append(args, obj{"name": a.Name, "json": string(a.JSON)})
			}
		}
		for _, d := range in.DependsOn {
			deps = append(deps, d)
		}
		o := obj{"id": in.OpID, "seq": in.Seq, "method": in.Method, "args": args, "dependsOn": deps}
		if in.Expected.Set {
			o["expected"] = obj{"cursor": in.Expected.Cursor}
		}
		ops = append(ops, o)
	}
	return obj{"id": b.BatchID, "atomic": b.Atomic, "ackedThrough": b.AckedThrough, "ops": ops}
}
