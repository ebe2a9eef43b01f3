// Lists that come in pages: the next one begins where the last one ended.

package client

import (
	"cmp"
	"strings"
	"testing"
	"testing/synctest"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// paging has the pages of one list, by what the last entry of the one before is called or,
// of a server that says where a list goes on, by that: "after" and what it is called. A ref
// may say which it was made from, as child/parent.
type paging map[string][]string

func (o paging) Serve(call *rpc.Call) {
	params, _ := call.Params()
	is := func(m methods.Method) bool { return m.Interface == call.Method().Interface && m.ID == call.Method().ID }
	var after string
	var err error
	switch {
	case is(methods.SpaceList):
		after, err = wire.Space_list_Params(params).After()
	case is(methods.SessionRefs):
		var query wire.RefsQuery
		if query, err = wire.Session_refs_Params(params).Query(); err == nil {
			after, err = query.After()
		}
	default: // hello, or restore
		call.Return(structSize(2, 2), func(s capnp.Struct, caps *rpc.CapTable) error {
			if is(methods.GatewayHello) {
				wire.Gateway_hello_Results(s).SetVersion(1)
				return nil
			}
			live := rpc.NewLocal(o)
			defer live.Release()
			return caps.Set(s, 0, live)
		})
		return
	}
	page, ok := o[after]
	if err != nil || !ok {
		call.Fail(rpc.Failedf("no page is after %q: %v", after, err))
		return
	}
	call.Return(structSize(1, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		last, _, _ := strings.Cut(page[len(page)-1], "/")
		_, more := o[last]
		_, says := o["after "+last]
		if is(methods.SpaceList) {
			r := wire.Space_list_Results(s)
			r.SetMore(more)
			list, err := r.NewSessions(int32(len(page)))
			for i := 0; err == nil && i < len(page); i++ {
				err = list.At(i).SetId(page[i])
			}
			return err
		}
		r := wire.Session_refs_Results(s)
		r.SetMore(more || says)
		if says {
			if err := r.SetNext("after " + last); err != nil {
				return err
			}
		}
		list, err := r.NewRefs(int32(len(page)))
		for i := 0; err == nil && i < len(page); i++ {
			ref, parent, _ := strings.Cut(page[i], "/")
			var grant wire.GrantInfo
			if grant, err = list.At(i).NewGrant(); err == nil {
				err = cmp.Or(grant.SetId(ref), list.At(i).SetParent(parent))
			}
		}
		return err
	})
}

func TestPagesFollowOnOneAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pages := paging{"": {"a", "b"}, "b": {"c"}, "c": {"d", "e"}}
		c := linkClient(t, Config{dial: hosts{"127.0.0.1:1": pages}.dial, RetryTimeout: -1})
		at := testAddress()
		sp := &Space{client: c, id: testSpace, saved: outbox.SavedRef{Ref: at.New(testSpace)}}
		check := func(what string, got []string, err error) {
			t.Helper()
			if strings.Join(got, "") != "abcde" || err != nil {
				t.Errorf("%s: %q, %v", what, got, err)
			}
		}
		var got []string
		var failed error
		for s, err := range sp.List(t.Context(), ListOptions{}) {
			if failed = err; err != nil || len(got) > len("abcde") {
				break
			}
			got = append(got, s.ID)
		}
		check("sessions", got, failed)
		got, failed = nil, nil
		for ref, err := range sessionAt(c, at.Hosts...).Refs(t.Context(), "") {
			if failed = err; err != nil || len(got) > len("abcde") {
				break
			}
			got = append(got, ref.Ref)
		}
		check("refs", got, failed)
		_ = c.Close()
	})
}

// A tree is given depth first. A server of before gives it by depth, and is asked for what
// comes after an id; one that says where its list goes on gives it in its order.
func TestTreesAreGivenDepthFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pages paging
		want  string
	}{
		"by depth, in one page":     {paging{"": {"a/up", "b/a", "c/a", "d/b", "e/c", "f/d"}}, "abdfce"},
		"by depth, in pages":        {paging{"": {"a/up", "b/a"}, "b": {"c/a"}, "c": {"d/b", "e/c"}, "e": {"f/d"}}, "abdfce"},
		"depth first":               {paging{"": {"a/up", "b/a"}, "after b": {"d/b", "f/d"}, "after f": {"c/a", "e/c"}}, "abdfce"},
		"as the server says":        {paging{"": {"a/up", "z/a"}, "after z": {"b/a", "c/z"}}, "azbc"},
		"nothing is left out of it": {paging{"": {"a/up", "b/a"}, "b": {"c/x", "d/c"}}, "abcd"},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := linkClient(t, Config{dial: hosts{"127.0.0.1:1": c.pages}.dial, RetryTimeout: -1})
			got := ""
			for ref, err := range sessionAt(client, testAddress().Hosts...).Refs(t.Context(), "") {
				if got += ref.Ref; err != nil || len(got) > len("abcdef") {
					t.Errorf("%s: %v", name, err)
					break
				}
			}
			if got != c.want {
				t.Errorf("%s: %s, not %s", name, got, c.want)
			}
			_ = client.Close()
		})
	}
}
