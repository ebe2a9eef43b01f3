// Session.share: mints a ref, without an outbox.

package objects

import (
	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// share goes through the committer like a batch, so that it is in the session's order, and the
// new ref is an event of the log like any other.
func (o *sess) share(c *rpc.Call) {
	s, _ := c.Params()
	w, err := wire.Session_share_Params(s).Ref()
	m, refused := decodeNewRef(w, err)
	answer := func(a session.Answer) {
		c.Return(structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			return o.service.setRefusal(wire.Session_share_Results(s).NewRefusal, a.Err)
		})
	}
	if refused == nil {
		refused = o.queueDirect(c, &session.Direct{Share: &m}, answer)
	}
	if refused != nil {
		answer(session.Answer{Err: refused})
	}
}
