// What is open or claimed of a session's requests, within the process.

package objects

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Requests returns a page of the session's requests that are open or claimed, in the order in which they were asked, of
// about as many bytes as an answer of the wires has. It needs the right to read.
func (h *Capability) Requests(ctx context.Context, q session.RequestQuery) (*session.RequestPage, error) {
	o, refused := h.session()
	if refused == nil {
		refused = q.Check()
	}
	if refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	var grant *capability.Grant
	found, err := o.service.cfg.Store.ReadRequests(ctx, o.auth.session, q, maxEntriesBytes, o.auth.Refs(), o.admit("requests", &grant))
	if err != nil {
		return nil, fault.From(o.conn.log, err, "read the requests")
	}
	return found.Shown(grant), nil
}
