//go:build unix

package httpapi

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// A ref that reaches children is good for requests to each session below its own, with its rights there.
func TestReach(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		space := "/spaces/" + r.owner.Target() + "/sessions"
		made := r.must(201, "POST", space, r.owner.Text(), obj{})
		id, owner := made["session"].(string), made["text"].(string)
		child := r.must(201, "POST", space, r.owner.Text(), obj{"parent": owner})
		stranger := r.must(201, "POST", space, r.owner.Text(), obj{})
		at, below := "/sessions/"+id, "/sessions/"+child["session"].(string)
		all := []string{"read", "append", "share"}
		shared := r.must(201, "POST", at+"/refs", owner, obj{"rights": all, "children": []string{"read", "append"}})
		ref := shared["text"].(string)
		plain := r.must(201, "POST", at+"/refs", owner, obj{"rights": all})["text"].(string)
		grand := "/sessions/" + r.must(201, "POST", space, r.owner.Text(), obj{"parent": child["text"]})["session"].(string)

		if g := r.must(200, "GET", at, ref, nil)["grant"].(obj); fmt.Sprint(g["children"]) != "[read append]" {
			t.Errorf("it is described as %v", g)
		}
		for _, row := range r.must(200, "GET", at+"/refs", owner, nil)["refs"].([]any) {
			if _, reaches := row.(obj)["children"]; reaches != (row.(obj)["ref"] == shared["ref"]) {
				t.Errorf("listed as %v", row)
			}
		}
		for _, path := range []string{below, grand} {
			d := r.must(200, "GET", path, ref, nil)["grant"].(obj)
			if d["ref"] != shared["ref"] || fmt.Sprint(d["rights"]) != "[read append]" || d["owner"] != false {
				t.Errorf("it is reached under %v", d)
			}
			r.must(200, "GET", path+"/events", ref, nil)
			for _, bad := range []string{plain, owner, stranger["text"].(string)} {
				if got := r.ask("GET", path, bad, nil); got.code() != "not_found" {
					t.Errorf("without reach: %d %s", got.status, got.text)
				}
			}
			if got := r.ask("POST", path+"/refs", ref, obj{"rights": []string{"read"}}); got.code() != "missing_right" {
				t.Errorf("sharing there: %d %s", got.status, got.text)
			}
		}
		for limits, want := range map[string]string{`{"rights":["read"]}`: "not_found", `{"rights":["read"],"children":["read"]}`: ""} {
			if got := r.do(r.attenuated("GET", below, ref, nil, limits)); got.code() != want {
				t.Errorf("with %s: %d %s", limits, got.status, got.text)
			}
		}
		if got := r.ask("GET", "/sessions/"+stranger["session"].(string), ref, nil); got.code() != "not_found" {
			t.Errorf("another session: %d %s", got.status, got.text)
		}
		for _, body := range []obj{{"rights": all, "children": []string{"share"}}, {"rights": []string{"read"}, "children": []string{"append"}}, {"rights": all, "children": []string{}}, {"rights": all, "children": []string{"read"}, "from": 2}} {
			if got := r.ask("POST", at+"/refs", owner, body); got.status != 400 {
				t.Errorf("%v: %d %s", body, got.status, got.text)
			}
		}
		if got := r.ask("POST", at+"/refs", plain, obj{"rights": []string{"read"}, "children": []string{"read"}}); got.code() != "widening" {
			t.Errorf("giving on what it has not: %d %s", got.status, got.text)
		}

		cut := r.must(200, "DELETE", at+"/refs/"+shared["ref"].(string), owner, nil)
		if cut["children_count"] != json.Number("2") || len(cut["children"].([]any)) != 2 || cut["children"].([]any)[0].(obj)["cut"] == nil {
			t.Errorf("the cuts are %v", cut)
		}
		for _, path := range []string{at, below, grand} {
			if got := r.ask("GET", path, ref, nil); got.code() != "revoked" {
				t.Errorf("afterwards: %d %s", got.status, got.text)
			}
		}
	})
}
