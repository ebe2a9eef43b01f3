//go:build linear

package linear

// The calls of capnp/mooring.capnp that the clients make, each waited for, and
// their answers as the faults and outcomes that they are.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

var (
	methodRestore    = rpc.Method{Interface: wire.Gateway_TypeID, ID: 1, Name: "Gateway.restore"}
	methodCreate     = rpc.Method{Interface: wire.Space_TypeID, ID: 0, Name: "Space.create"}
	methodDescribe   = rpc.Method{Interface: wire.Session_TypeID, ID: 0, Name: "Session.describe"}
	methodOpenStream = rpc.Method{Interface: wire.Session_TypeID, ID: 1, Name: "Session.openStream"}
	methodRevoke     = rpc.Method{Interface: wire.Session_TypeID, ID: 4, Name: "Session.revoke"}
	methodEvents     = rpc.Method{Interface: wire.Session_TypeID, ID: 5, Name: "Session.events"}
	methodApply      = rpc.Method{Interface: wire.Stream_TypeID, ID: 0, Name: "Stream.apply"}
)

// patience is how long one answer may take. Nothing here waits for long.
const patience = time.Minute

// peer is a connection to one server.
type peer struct {
	conn    *rpc.Conn
	gateway *rpc.Ref
	ended   chan struct{} // closed when Run has returned
}

func connect(ctx context.Context, address string) (*peer, error) {
	t, err := rpc.Dial(ctx, "ws://"+address+"/capnp", rpc.DialOptions{})
	if err != nil {
		return nil, fault.Disconnected.Because(err, "connect: %v", err)
	}
	p := &peer{conn: rpc.NewConn(t, rpc.Config{}), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = p.conn.Run(context.Background()) // why it ended, calls say
	}()
	p.gateway = p.conn.Bootstrap(ctx)
	return p, nil
}

// over says whether the connection has ended.
func (p *peer) over() bool {
	select {
	case <-p.conn.Done():
		return true
	default:
		return false
	}
}

func (p *peer) close() {
	p.conn.Close("done")
	<-p.ended
	p.gateway.Release()
}

// words is the size of a params struct: words of data and pointers.
func words(data capnp.Size, pointers uint16) capnp.ObjectSize {
	return capnp.ObjectSize{DataSize: data * 8, PointerCount: pointers}
}

// ask makes a call and reads its answer while it is there. What the call ends
// with, if not with a result, is a fault.
func ask(ctx context.Context, to *rpc.Ref, m rpc.Method, size capnp.ObjectSize, place func(capnp.Struct, *rpc.CapTable) error, read func(capnp.Struct, *rpc.Promise) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p := to.Call(ctx, m, size, place)
	defer p.Release()
	s, _, err := p.Wait(ctx)
	if err != nil {
		return faultOf(m, err)
	}
	return read(s, p)
}

// faultOf is what a call ended with, as a fault.
func faultOf(m rpc.Method, err error) error {
	var ex *rpc.Exception
	if !errors.As(err, &ex) {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if f, ok := fault.ParseReason(ex.Reason); ok {
		return f
	}
	switch ex.Type {
	case rpc.Disconnected:
		return fault.Disconnected.Because(ex, "%s", ex.Reason)
	case rpc.Overloaded:
		return fault.Overloaded.Because(ex, "%s", ex.Reason)
	}
	return fmt.Errorf("%s: %w", m.Name, err)
}

// refusalOf is a refusal that came as data; nil if there is none.
func refusalOf(r wire.Refusal, err error) (*fault.Error, error) {
	if err != nil {
		return nil, err
	}
	text, err := r.Message_()
	if err != nil || fault.Code(r.Code()) == fault.None {
		return nil, err
	}
	return fault.Code(r.Code()).With("%s", text).Pos(r.At()), nil
}

// redemption is one for all, so that only a ref's first restore costs a commit.
const redemption = "histories"

func restoreOn(ctx context.Context, p *peer, r capability.Ref) (live *rpc.Ref, err error) {
	err = ask(ctx, p.gateway, methodRestore, words(0, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		to := wire.Gateway_restore_Params(s)
		sturdy, err := to.NewRef()
		if err == nil {
			err = sturdy.SetId(r.ID)
		}
		if err == nil {
			err = sturdy.SetSecret(r.Secret.Reveal())
		}
		return errors.Join(err, to.SetRedemption(redemption))
	}, func(_ capnp.Struct, p *rpc.Promise) error {
		live = p.Cap(0)
		return nil
	})
	return live, err
}

func createOn(ctx context.Context, space *rpc.Ref, session, owner string) (live *rpc.Ref, err error) {
	err = ask(ctx, space, methodCreate, words(0, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		to := wire.Space_create_Params(s)
		return errors.Join(to.SetSession(session), to.SetOwner(owner))
	}, func(_ capnp.Struct, p *rpc.Promise) error {
		live = p.Cap(0)
		return nil
	})
	return live, err
}

func openStreamOn(ctx context.Context, session *rpc.Ref, outbox string, secret capability.Secret) (live *rpc.Ref, err error) {
	err = ask(ctx, session, methodOpenStream, words(1, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		to := wire.Session_openStream_Params(s)
		to.SetIncarnation(1)
		return errors.Join(to.SetOutbox(outbox), to.SetSecret(secret.Reveal()))
	}, func(_ capnp.Struct, p *rpc.Promise) error {
		live = p.Cap(0)
		return nil
	})
	return live, err
}

// applyOn sends a batch. read gets the ack; a refusal of the whole comes back as
// the fault.
func applyOn(ctx context.Context, stream *rpc.Ref, b *ledger.Batch, read func(wire.Ack) error) error {
	return ask(ctx, stream, methodApply, words(0, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		to, err := wire.Stream_apply_Params(s).NewBatch()
		if err != nil {
			return err
		}
		return encodeBatch(to, b)
	}, func(s capnp.Struct, _ *rpc.Promise) error {
		reply, err := wire.Stream_apply_Results(s).Reply()
		if err != nil {
			return err
		}
		if reply.Which() == wire.ApplyReply_Which_refusal {
			refused, err := refusalOf(reply.Refusal())
			if err == nil && refused != nil {
				return refused
			}
			return errors.Join(errors.New("a batch was refused without a reason"), err)
		}
		ack, err := reply.Ack()
		if err != nil {
			return err
		}
		return read(ack)
	})
}

func encodeBatch(to wire.Batch, b *ledger.Batch) error {
	to.SetAtomic(b.Atomic)
	ops, err := to.NewOps(int32(len(b.Ops)))
	if err != nil {
		return err
	}
	errs := []error{to.SetId(b.BatchID)}
	for i := range b.Ops {
		in, to := &b.Ops[i], ops.At(i)
		to.SetSeq(in.Seq)
		to.Expected().SetNone()
		if in.Expected.Set {
			to.Expected().SetCursor(in.Expected.Cursor)
		}
		args, err := to.NewArgs(int32(len(in.Args)))
		if err != nil {
			return err
		}
		errs = append(errs, to.SetId(in.OpID), to.SetMethod(in.Method))
		for j, a := range in.Args {
			errs = append(errs, args.At(j).SetName(a.Name), args.At(j).SetJson(string(a.JSON)))
		}
	}
	return errors.Join(errs...)
}

// revokeOn is Session.revoke. refused is what came as data.
func revokeOn(ctx context.Context, session *rpc.Ref, id string, epoch bool) (cut, now uint64, refused *fault.Error, err error) {
	err = ask(ctx, session, methodRevoke, words(1, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		to := wire.Session_revoke_Params(s)
		to.SetEpoch(epoch)
		return to.SetRef(id)
	}, func(s capnp.Struct, _ *rpc.Promise) (err error) {
		r := wire.Session_revoke_Results(s)
		cut, now = r.Cut(), r.Epoch()
		refused, err = refusalOf(r.Refusal())
		return err
	})
	return cut, now, refused, err
}

func describeOn(ctx context.Context, session *rpc.Ref, read func(wire.SessionInfo, wire.GrantInfo)) error {
	return ask(ctx, session, methodDescribe, words(0, 0), nil, func(s capnp.Struct, _ *rpc.Promise) error {
		r := wire.Session_describe_Results(s)
		info, err := r.Info()
		if err != nil {
			return err
		}
		grant, err := r.Grant()
		if err == nil {
			read(info, grant)
		}
		return err
	})
}

func eventsOn(ctx context.Context, session *rpc.Ref, read func(cursor uint64, events wire.Event_List) error) error {
	return ask(ctx, session, methodEvents, words(2, 3), func(s capnp.Struct, _ *rpc.CapTable) error {
		list, err := wire.Session_events_Params(s).NewUnderstands(1) // from the beginning, as many as there are
		if err != nil {
			return err
		}
		return list.Set(0, "revert")
	}, func(s capnp.Struct, _ *rpc.Promise) error {
		r := wire.Session_events_Results(s)
		list, err := r.Events()
		if err != nil {
			return err
		}
		return read(r.Cursor(), list)
	})
}
