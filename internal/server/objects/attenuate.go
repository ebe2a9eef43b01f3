// attenuate: a live capability that allows less, for its holder to pass on. It has the same ref,
// and dies with it; the limits are checked against what the ref allows now, and never change
// afterwards.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// attenuate serves Session.attenuate.
func (o *sess) attenuate(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	limits, refused := decodeAttenuation(wire.Session_attenuate_Params(s).Limits())
	if refused != nil {
		fail(c, refused)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	sight, err := o.service.cfg.Store.ReadAccess(ctx, o.auth.session, o.auth.Refs())
	if err != nil {
		fail(c, fault.From(o.conn.log, err, "look up the ref"))
		return
	}
	grant, refused := o.check(sight, 0, "attenuate")
	if refused == nil {
		grant, refused = capability.Attenuate(grant, limits, sight.Row.Epoch, sight.Now)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	o.service.cfg.Usage.Record(o.conn.peer, grant, "attenuate", sight.Row.Cursor)
	answerObject(c, newSess(o.service, o.conn, o.auth.attenuate(grant)))
}

// attenuate serves Space.attenuate.
func (o *space) attenuate(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	limits, refused := decodeAttenuation(wire.Space_attenuate_Params(s).Limits())
	if refused != nil {
		fail(c, refused)
		return
	}
	grant, sight, refused := o.readAccess(ctx, 0, "attenuate")
	if refused == nil {
		grant, refused = capability.Attenuate(grant, limits, 0, sight.Now)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	o.service.cfg.Usage.Record(o.conn.peer, grant, "attenuate", 0)
	answerObject(c, &space{service: o.service, conn: o.conn, id: o.id, ref: o.ref, attenuated: grant})
}

// answerObject answers a call whose only result is a new object.
func answerObject(c *rpc.Call, object rpc.Object) {
	cap := rpc.NewLocal(object)
	defer cap.Release()
	c.Return(structSize(0, 1), func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, cap) })
}

// maxMethods bounds the methods decoded. It is above the maximum of a grant, so that package
// capability refuses them.
const maxMethods = 256

// decodeAttenuation decodes the limits of a new ref or object.
func decodeAttenuation(from wire.Attenuation, err error) (m capability.MintRequest, refused *fault.Error) {
	var r fieldReader
	r.fail(err)
	m.Expires, m.Lifetime, m.VisibleFrom = from.Expires(), from.Lifetime(), from.From()
	m.Message, m.Label, m.Actor = r.text(from.Message_()), r.text(from.Label()), r.text(from.Actor())
	if bits := from.Rights(); bits > 0xff {
		return m, fault.BadArgument.With("there are no rights of the bits %#x", bits)
	} else {
		m.Rights = capability.Rights(bits)
	}
	methods, err := from.Methods()
	r.fail(err)
	if n := methods.Len(); n > maxMethods {
		return m, fault.BadArgument.With("at most %d methods can be named", maxMethods)
	}
	if from.HasMethods() {
		m.Methods = []string{}
	}
	for i := range methods.Len() {
		m.Methods = append(m.Methods, r.text(methods.At(i)))
	}
	return m, r.fault("the limits")
}
