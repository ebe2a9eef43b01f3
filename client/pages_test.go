// Lists that come in pages: the next one begins where the last one ended.

package client

import (
	"strings"
	"testing"
	"testing/synctest"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// paging has the pages of one list, by what the last entry of the one before is called.
type paging map[string][]string

func (o paging) Serve(call *rpc.Call) {
	params, _ := call.Params()
	is := func(m rpc.Method) bool { return m.Interface == call.Method().Interface && m.ID == call.Method().ID }
	var after string
	var err error
	switch {
	case is(methodList):
		after, err = wire.Space_list_Params(params).After()
	case is(methodRefs):
		var query wire.RefsQuery
		if query, err = wire.Session_refs_Params(params).Query(); err == nil {
			after, err = query.After()
		}
	default: // hello, or restore
		call.Return(words(2, 2), func(s capnp.Struct, caps *rpc.CapTable) error {
			if is(methodHello) {
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
	call.Return(words(1, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		_, more := o[page[len(page)-1]]
		if is(methodList) {
			r := wire.Space_list_Results(s)
			r.SetMore(more)
			list, err := r.NewSessions(int32(len(page)))
			for i := 0; err == nil && i < len(page); i++ {
				err = list.At(i).SetId(page[i])
			}
			return err
		}
		r := wire.Session_refs_Results(s)
		r.SetMore(more)
		list, err := r.NewRefs(int32(len(page)))
		for i := 0; err == nil && i < len(page); i++ {
			var grant wire.GrantInfo
			if grant, err = list.At(i).NewGrant(); err == nil {
				err = grant.SetId(page[i])
			}
		}
		return err
	})
}

func TestPagesFollowOnOneAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pages := paging{"": {"a", "b"}, "b": {"c"}, "c": {"d", "e"}}
		c := linkClient(t, Config{Dial: hosts{"127.0.0.1:1": pages}.dial, Patience: -1})
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
