//go:build unix

package httpapi

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
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
			"order=title":                  {one.id, two.id},
			"order=title&deleted=true":     {one.id, two.id, three.id}, // which has lost its title
			"order=title&search=second":    {two.id},
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
		for _, bad := range []string{"order=upside-down", "deleted=1", "after=x", "order=title&after=" + one.id, "order=title&after=x." + one.id, "order=changed&after=" + one.id, "order=newest&after=1." + one.id} {
			if got := r.ask("GET", space+"?"+bad, r.owner.Text(), nil); got.status != 400 || got.code() != "bad_argument" {
				t.Errorf("%s: %d %s", bad, got.status, got.text)
			}
		}
	})
}

// Trees of refs come depth first and in pages, to who may cut them.
func TestTreesOfRefs(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		below := func(ref string, wish obj) (id, text string) {
			made := r.must(201, "POST", "/sessions/"+m.id+"/refs", ref, wish)
			return made["ref"].(string), made["text"].(string)
		}
		helper, helpers := below(m.owner.Text(), obj{"rights": []string{"read", "share", "revoke"}, "label": "helper"})
		reader, readers := below(m.owner.Text(), obj{"rights": []string{"read"}})
		one, _ := below(helpers, obj{"rights": []string{"read"}, "redemptions": 3, "seal": base64.RawURLEncoding.EncodeToString(make([]byte, 32))})
		two, _ := below(helpers, obj{"rights": []string{"read"}})
		path := "/sessions/" + m.id + "/refs"
		rows := map[string]obj{}
		list := func(path, query, ref string) (ids []string) {
			for after := ""; ; {
				page := r.must(200, "GET", path+"?"+query+after, ref, nil)
				for _, row := range page["refs"].([]any) {
					id := row.(obj)["ref"].(string)
					ids, rows[id] = append(ids, id), row.(obj)
				}
				if next, more := page["next"].(string); !more || page["more"] != more {
					return ids
				} else {
					after = "&after=" + next
				}
			}
		}
		list(path, "", m.owner.Text())
		made := func(a, b string) int { // many in one millisecond
			at := func(id string) string { return rows[id]["created"].(json.Number).String() }
			return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a, b))
		}
		theirs := append([]string{helper}, slices.SortedFunc(slices.Values([]string{one, two}), made)...)
		all := append([]string{m.owner.ID}, append(theirs, reader)...)
		if made(reader, helper) < 0 {
			all = append([]string{m.owner.ID, reader}, theirs...)
		}
		for query, want := range map[string][]string{"": all, "limit=1": all, "limit=2": all, "limit=1000": all, "under=" + helper: theirs, "limit=1&under=" + reader: {reader}} {
			if got := list(path, query, m.owner.Text()); !slices.Equal(got, want) {
				t.Errorf("%s: %v, not %v", query, got, want)
			}
		}
		if got := list(path, "limit=2", helpers); !slices.Equal(got, theirs) {
			t.Errorf("the helper's: %v, not %v", got, theirs)
		}
		if got, want := list("/spaces/"+r.owner.Target()+"/refs", "limit=3", r.owner.Text()), append([]string{r.owner.ID}, all...); !slices.Equal(got, want) {
			t.Errorf("the space's: %v, not %v", got, want)
		}
		r.must(200, "DELETE", path+"/"+one, m.owner.Text(), nil)
		list(path, "", m.owner.Text())
		if row := rows[one]; row["dead"] != "revoked" || row["cut"] == nil || row["revoked"] == nil || row["revoked_by"] != m.owner.ID || row["sealed"] != true ||
			row["redemptions"] != json.Number("3") || row["parent"] != helper || row["created"] == nil {
			t.Errorf("a dead ref's row: %v", row)
		}
		if row := rows[helper]; row["dead"] != nil || row["label"] != "helper" || row["last_used"] == nil || row["uses"].(json.Number) == "0" {
			t.Errorf("a living ref's row: %v", row)
		}
		for query, want := range map[string]string{"under=x": "404 not_found", "under=" + r.owner.ID: "404 not_found", "after=x": "409 conflict", "after=" + one + "~0": "409 conflict",
			"under=" + reader + "&after=" + one: "409 conflict", "limit=0": "400 bad_argument", "order=x": "400 bad_argument"} {
			if got := r.ask("GET", path+"?"+query, m.owner.Text(), nil); fmt.Sprint(got.status, " ", got.code()) != want {
				t.Errorf("%s: %d %s, not %s", query, got.status, got.text, want)
			}
		}
		for ref, query := range map[string]string{readers: "", helpers: "?under=" + reader} {
			if got := r.ask("GET", path+query, ref, nil); got.status != 403 || got.code() != "missing_right" {
				t.Errorf("who may not cut them: %d %s", got.status, got.text)
			}
		}
	})
}
