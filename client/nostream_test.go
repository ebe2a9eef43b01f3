// A ref that can change nothing, whose streams are used up: who comes then ends with what a stream
// would have recorded.

package client_test

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/outbox"
)

func TestRefusedStreamIsADenial(t *testing.T) {
	t.Parallel()
	const most = 3
	r := testRig(t, func(c *node.Config) { c.ReadOnlyStreams = most })
	owner := r.newSession(t, r.open(t, "owner"))
	shares := owner.Batch()
	reader, _ := shares.Share(client.ShareOptions{Rights: capability.Read})
	writer, _ := shares.Share(client.ShareOptions{Rights: capability.Read | capability.Append})
	applied(t, shares)
	put := func(c *client.Client, ref capability.Ref) client.Ticket {
		t.Helper()
		s, err := c.Session(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		b := s.Batch()
		b.Put(message(1), object{})
		b.Put(message(2), object{})
		ticket, err := b.Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	const denied = "denied/missing_right denied/missing_right"
	for n := range most + 1 {
		c := r.open(t, fmt.Sprint(n))
		ticket := put(c, reader)
		if got := brief(waited(t, ticket)); got != denied {
			t.Fatalf("outbox %d: %s", n, got)
		}
		if err := c.Drain(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		rows, err := c.Outbox().List(t.Context(), outbox.Filter{Batch: ticket.Batch})
		if made := n < most; err != nil || len(rows) != 2 || rows[0].State != outbox.Failed || (rows[0].Seq > 0) != made {
			t.Fatalf("outbox %d: %+v, %v", n, rows, err)
		}
		if n < most {
			continue
		}
		// Another ref makes the stream, from its first seq on, and what is denied is recorded in it then.
		if got := brief(waited(t, put(c, writer))); got != "applied applied" {
			t.Errorf("under a ref that may write: %s", got)
		}
		if got := brief(waited(t, put(c, reader))); got != denied {
			t.Errorf("in the stream that there is: %s", got)
		}
		if err := c.Drain(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if st, err := c.Status(t.Context()); err != nil || st.Unfinished() != 0 || st.Failed != 4 || st.Acked != 2 {
			t.Errorf("%+v, %v", st, err)
		}
	}
}
