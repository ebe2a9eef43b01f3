package gocapnp

// The go-capnp client of a real server.

import (
	"bytes"
	"encoding/hex"
	"strings"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"

	mooring "github.com/mooring-rpc/mooring/capnp/wire"
)

// restore restores a space's ref, makes a session and appends to it, all in one flight: nothing is waited for before
// the batch is answered. The arguments are told in the Go test.
func (t *trial) restore() {
	if len(t.args) != 9 {
		t.failf("%d arguments", len(t.args))
	}
	ref, secret, session, owner, hash, box, batch, create, put := t.args[0], t.args[1], t.args[2], t.args[3], t.args[4],
		t.args[5], t.args[6], t.args[7], t.args[8]
	gateway := mooring.Gateway(t.peer)
	hello, doneHello := gateway.Hello(t.ctx, func(p mooring.Gateway_hello_Params) error {
		p.SetVersion(mooring.ProtocolVersion)
		return p.SetAgent("gocapnp")
	})
	defer doneHello()
	restoring := func(secret string) (mooring.Gateway_restore_Results_Future, capnp.ReleaseFunc) {
		return gateway.Restore(t.ctx, func(p mooring.Gateway_restore_Params) error {
			to, err := p.NewRef()
			if err != nil {
				return err
			}
			raw, err := hex.DecodeString(secret)
			if err != nil {
				return err
			}
			if err := to.SetId(ref); err != nil {
				return err
			}
			if err := to.SetSecret(raw); err != nil {
				return err
			}
			return p.SetRedemption("interop")
		})
	}
	restored, doneRestored := restoring(secret)
	defer doneRestored()
	made, doneMade := mooring.Space(restored.Cap()).Create(t.ctx, func(p mooring.Space_create_Params) error {
		if err := p.SetSession(session); err != nil {
			return err
		}
		return p.SetOwner(owner)
	})
	defer doneMade()
	sess := made.Session() // once only: see trial.make
	opened, doneOpened := sess.OpenStream(t.ctx, func(p mooring.Session_openStream_Params) error {
		p.SetIncarnation(1)
		if err := p.SetOutbox(box); err != nil {
			return err
		}
		return p.SetSecret(bytes.Repeat([]byte{7}, 32))
	})
	defer doneOpened()
	applied, doneApplied := opened.Stream().Apply(t.ctx, func(p mooring.Stream_apply_Params) error {
		to, err := p.NewBatch()
		if err != nil {
			return err
		}
		if err := to.SetId(batch); err != nil {
			return err
		}
		ops, err := to.NewOps(2)
		if err != nil {
			return err
		}
		if err := setOp(ops.At(0), 1, create, "create", "ref", `"`+owner+`"`, "hash", `"`+hash+`"`); err != nil {
			return err
		}
		return setOp(ops.At(1), 2, put, "put", "key", `"message/msg_1"`, "payload", `{"text":"from go-capnp"}`)
	})
	defer doneApplied()

	a, err := applied.Struct()
	t.must(err)
	reply, err := a.Reply()
	t.must(err)
	if reply.Which() != mooring.ApplyReply_Which_ack {
		refusal, err := reply.Refusal()
		t.must(err)
		why, err := refusal.Message_()
		t.failf("refused: %d %s, %v", refusal.Code(), why, err)
	}
	ack, err := reply.Ack()
	t.must(err)
	if ack.Applied() != 2 {
		t.failf("%d ops applied", ack.Applied())
	}
	h, err := hello.Struct()
	t.must(err)
	if h.Version() != mooring.ProtocolVersion {
		t.failf("the server speaks version %d", h.Version())
	}
	described, doneDescribed := sess.Describe(t.ctx, nil)
	defer doneDescribed()
	d, err := described.Struct()
	t.must(err)
	info, err := d.Info()
	t.must(err)
	if id, err := info.Id(); err != nil || id != session || info.Cursor() != ack.Cursor() {
		t.failf("session %q at %d, %v; the batch ended at %d", id, info.Cursor(), err, ack.Cursor())
	}
	// A wrong secret is an error of the call, and of what is pipelined on it.
	wrong, doneWrong := restoring(strings.Repeat("00", 32))
	defer doneWrong()
	_, err = wrong.Struct()
	t.refused("a wrong secret", err, exc.Failed)
}

// setOp fills in an op with named arguments.
func setOp(to mooring.Op, seq uint64, id, method string, args ...string) error {
	to.SetSeq(seq)
	if err := to.SetId(id); err != nil {
		return err
	}
	if err := to.SetMethod(method); err != nil {
		return err
	}
	list, err := to.NewArgs(int32(len(args) / 2))
	if err != nil {
		return err
	}
	for i := range list.Len() {
		if err := list.At(i).SetName(args[2*i]); err != nil {
			return err
		}
		if err := list.At(i).SetJson(args[2*i+1]); err != nil {
			return err
		}
	}
	return nil
}
