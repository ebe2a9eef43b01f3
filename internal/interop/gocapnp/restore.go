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
// the batch is answered. The Go test describes the arguments.
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

// save restores a session's ref that somebody was given, saves the live capability, all in one flight, and restores what
// saving gave: another ref to the same. The arguments are the ref's id and secret.
func (t *trial) save() {
	if len(t.args) != 2 {
		t.failf("%d arguments", len(t.args))
	}
	secret, err := hex.DecodeString(t.args[1])
	t.must(err)
	gateway := mooring.Gateway(t.peer)
	restoring := func(id string, secret []byte) (mooring.Gateway_restore_Results_Future, capnp.ReleaseFunc) {
		return gateway.Restore(t.ctx, func(p mooring.Gateway_restore_Params) error {
			to, err := p.NewRef()
			if err != nil {
				return err
			}
			if err := to.SetId(id); err != nil {
				return err
			}
			if err := to.SetSecret(secret); err != nil {
				return err
			}
			return p.SetRedemption("interop")
		})
	}
	described := func(sess mooring.Session) mooring.GrantInfo {
		answer, _ := sess.Describe(t.ctx, nil) // released with the connection
		d, err := answer.Struct()
		t.must(err)
		grant, err := d.Grant()
		t.must(err)
		return grant
	}
	restored, doneRestored := restoring(t.args[0], secret)
	defer doneRestored()
	given := mooring.Session(restored.Cap()) // once only: see trial.make
	answer, doneAnswer := given.Save(t.ctx, nil)
	defer doneAnswer()
	saved, err := answer.Struct()
	t.must(err)
	ptr, err := saved.SturdyRef()
	t.must(err)
	ref := mooring.SturdyRef(ptr.Struct())
	id, err := ref.Id()
	t.must(err)
	secret, err = ref.Secret()
	t.must(err)
	if id == t.args[0] || len(secret) != 32 {
		t.failf("saved as %s, with a secret of %d bytes", id, len(secret))
	}
	again, doneAgain := restoring(id, secret)
	defer doneAgain()
	first, second := described(given), described(mooring.Session(again.Cap()))
	actor, err := first.Actor()
	t.must(err)
	if got, err := second.Actor(); err != nil || got != actor || second.Rights() != first.Rights() || second.Dead() != 0 {
		t.failf("what was saved allows %d as %s, it was %d as %s; %v", second.Rights(), got, first.Rights(), actor, err)
	}
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
