package outbox

import (
	"context"
	"errors"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// TestRefStoredByAnotherProcess has a stream stand still for want of a ref that
// works, in each way that it can, and another process store one.
func TestRefStoredByAnotherProcess(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		for i, how := range []string{"refused when opened", "refused when sent", "not there", "another secret"} {
			p := p.fresh(i)
			one, two := p.open(t, quick()), p.open(t, quick())
			ctx := limited(t)
			session, other := newSession(), withSession(t, one)
			bad := testRef(t, one, session, RefMeta{})
			x := commit(t, one, Batch{Session: session, Ops: []Op{put("1")}})
			good := testAddress.New(session)
			srv := newFakeServer()
			link := &refusing{fakeServer: srv}
			switch how {
			case "refused when opened":
				link.ref = bad.Text()
			case "refused when sent":
				srv.before = func(b *ledger.Batch) (error, bool) {
					if opened := srv.openings(); b.Session == session && opened[len(opened)-1].Ref.ID == bad.ID {
						return fault.UnknownRef.With("on request"), false
					}
					return nil, false
				}
			case "not there":
				if err := one.DropRef(ctx, bad.ID, false); err != nil {
					t.Fatal(err)
				}
			case "another secret":
				link.ref = bad.Text()
				good = bad.With(bad.ID, good.Secret)
			}
			run(t, one, link)
			stopped := func() bool {
				_, err := two.Wait(ctx, x.Batch)
				still, ok := errors.AsType[*StreamStoppedError](err)
				return ok && still.Session == session
			}
			eventually(t, "it stands still", stopped)
			tried := len(srv.openings())
			// What is of no use to it changes nothing.
			testRef(t, two, newSession(), RefMeta{})
			wait(t, two, commit(t, two, Batch{Session: other, Ops: []Op{put("2")}}))
			if n := len(srv.openings()); !stopped() || n != tried+1 {
				t.Errorf("%s: %d openings after %d", how, n, tried)
			}
			if err := two.PutRef(ctx, good, RefMeta{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, how+": it goes on", func() bool { return len(srv.log(session)) == 1 })
			eventually(t, how+": it is known there", func() bool {
				_, err := two.Wait(ctx, x.Batch)
				return err == nil
			})
		}
	})
}

// TestBetterRefIsThereAlready has a ref be refused when a newer one is stored:
// the stream goes on with that.
func TestBetterRefIsThereAlready(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		one, two := p.open(t, quick()), p.open(t, quick())
		session := newSession()
		bad := testRef(t, one, session, RefMeta{})
		srv := newFakeServer()
		refused := make(chan struct{})
		srv.before = func(b *ledger.Batch) (error, bool) {
			if opened := srv.openings(); opened[len(opened)-1].Ref.ID == bad.ID {
				<-refused
				return fault.Revoked.With("on request"), false
			}
			return nil, false
		}
		commit(t, one, Batch{Session: session, Ops: []Op{put("1")}})
		run(t, one, srv)
		eventually(t, "it is opened", func() bool { return len(srv.openings()) == 1 })
		testRef(t, two, session, RefMeta{})
		close(refused)
		eventually(t, "it goes on", func() bool { return len(srv.log(session)) == 1 })
	})
}

// refusing is a server that knows nothing of one ref.
type refusing struct {
	*fakeServer
	ref string
}

func (r *refusing) OpenStream(ctx context.Context, req StreamRequest) (Stream, error) {
	if req.Ref.Text() == r.ref {
		return nil, fault.UnknownRef.With("on request")
	}
	return r.fakeServer.OpenStream(ctx, req)
}
