// The children of a session.

package client

import (
	"context"
	"iter"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/rpc"
)

// Children yields the living sessions that were created with this one as their parent, by id, page by
// page: of each its ID, Parent and Created, and nothing else. A ref of some keys shows those that were
// started by these, one with a first cursor none. The iteration ends after an error: Incompatible if the
// server is too old.
func (s *Session) Children(ctx context.Context) iter.Seq2[SessionInfo, error] {
	return func(yield func(SessionInfo, error) bool) {
		for after, more := "", true; more; more = after != "" {
			var page []SessionInfo
			next := ""
			err := s.call(ctx, capability.Read, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
				return call(ctx, live, methods.SessionChildren, func(s capnp.Struct, _ *rpc.CapTable) error {
					p := wire.Session_children_Params(s)
					p.SetLimit(listPage)
					return p.SetAfter(after)
				})
			}, func(results capnp.Struct) (err error) {
				r := wire.Session_children_Results(results)
				if page, err = decodeSessions(r.Sessions()); err == nil {
					next, err = r.Next()
				}
				return err
			})
			if err != nil {
				yield(SessionInfo{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			after = next
		}
	}
}
