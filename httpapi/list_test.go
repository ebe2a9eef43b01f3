//go:build unix

package httpapi

import (
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/store"
)

// A list is sorted and searched by the server, in pages; what is deleted is there when it
// is asked for.
func TestLists(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		one, two, three := r.create(), r.create(), r.create()
		for _, c := range []struct {
			m     *made
			title string
		}{{three, "Third"}, {one, "First"}, {two, "Second"}} {
			r.must(200, "POST", "/sessions/"+c.m.id+"/batches", c.m.owner.Text(), c.m.box.json(c.m.box.batch(c.m.id, op("put", "key", "session", "payload", map[string]string{"title": c.title}))))
		}
		r.must(200, "POST", "/sessions/"+three.id+"/batches", three.owner.Text(), three.box.json(three.box.batch(three.id, op("delete"))))
		space := "/spaces/" + r.owner.Target() + "/sessions"
		for query, want := range map[string][]string{
			"":                             {one.id, two.id},
			"order=oldest&deleted=true":    {one.id, two.id, three.id},
			"order=newest&deleted=false":   {two.id, one.id},
			"order=changed":                {two.id, one.id},
			"order=changed&deleted=true":   {three.id, two.id, one.id},
			"search=FIRST":                 {one.id},
			"search=" + two.id:             {two.id},
			"search=third&deleted=true":    nil,
			"search=nothing&order=changed": nil,
		} {
			for _, limit := range []string{"&limit=1", ""} {
				var got []string
				after, more := "", true
				for more {
					page := r.must(200, "GET", space+"?"+query+limit+after, r.owner.Text(), nil)
					for _, s := range page["sessions"].([]any) {
						got = append(got, s.(obj)["id"].(string))
					}
					if more = page["more"].(bool); more {
						after = "&after=" + page["next"].(string)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s%s: %v, not %v", query, limit, got, want)
				}
			}
		}
		for _, bad := range []string{"order=title", "deleted=1", "after=x", "order=changed&after=" + one.id, "order=newest&after=1." + one.id} {
			if got := r.ask("GET", space+"?"+bad, r.owner.Text(), nil); got.status != 400 || got.code() != "bad_argument" {
				t.Errorf("%s: %d %s", bad, got.status, got.text)
			}
		}
	})
}
