//go:build unix

package httpapi

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// Old sessions are listed, purged and deleted, page by page.
func TestOlder(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		space := "/spaces/" + r.owner.Target()
		var all []*made
		for range 3 {
			m := r.create()
			r.put(m, 1)
			all = append(all, m)
		}
		// past waits until the clock has passed the last events of all: a millisecond, at most.
		past := func() (now int64) {
			for _, m := range all {
				updated, err := r.must(200, "GET", "/sessions/"+m.id, r.owner.Text(), nil)["session"].(obj)["updated"].(json.Number).Int64()
				if err != nil {
					t.Fatal(err)
				}
				for now <= updated {
					now = time.Now().UnixMilli()
				}
			}
			return now
		}
		before := past()
		listed := 0
		for after := ""; ; {
			page := r.must(200, "POST", space+"/older", r.owner.Text(), obj{"before": before, "after": after, "limit": 2})
			for _, one := range page["sessions"].([]any) {
				if s := one.(obj); s["events"] != json.Number("2") || s["bytes"] == json.Number("0") || s["error"] != nil {
					t.Errorf("listed: %v", s)
				}
				listed++
			}
			if page["more"] != true {
				break
			}
			after = page["next"].(string)
		}
		if listed != 3 {
			t.Errorf("listed %d", listed)
		}
		box := newBox()
		r.must(200, "POST", "/sessions/"+all[0].id+"/batches", r.owner.Text(), box.json(box.batch(all[0].id, op("begin", "message", "m", "payload", obj{"role": "assistant"}))))
		before = past()
		purged := r.must(200, "POST", space+"/older", r.owner.Text(), obj{"method": "purge", "key": "env/x", "before": before})
		if purged["done"] != json.Number("0") || purged["unchanged"] != json.Number("2") || len(purged["sessions"].([]any)) != 1 {
			t.Errorf("purged: %v", purged)
		}
		done := r.must(200, "POST", space+"/older", r.owner.Text(), obj{"method": "delete", "before": before})
		left := done["sessions"].([]any)
		if done["done"] != json.Number("2") || done["more"] != false || done["stopped"] != nil || len(left) != 1 || left[0].(obj)["id"] != all[0].id || left[0].(obj)["error"].(obj)["code"] != "turn_open" {
			t.Errorf("deleted: %v", done)
		}
		if got := r.ask("GET", "/sessions/"+all[1].id, all[1].owner.Text(), nil); got.code() != "session_deleted" {
			t.Errorf("a deleted one: %d %s", got.status, got.text)
		}
		maker := r.must(201, "POST", space+"/refs", r.owner.Text(), obj{"rights": []string{"create", "list", "share", "revoke"}})["text"].(string)
		for i, c := range []struct {
			ref  string
			body obj
			code string
		}{
			{maker, obj{"method": "delete", "age": 5000}, "missing_right"},
			{r.owner.Text(), obj{"method": "delete"}, "bad_argument"},
			{r.owner.Text(), obj{"method": "delete", "age": 999}, "bad_argument"},
			{r.owner.Text(), obj{"method": "delete", "age": "18446744073709551615"}, "bad_argument"},
			{r.owner.Text(), obj{"method": "put", "age": 5000}, "bad_argument"},
			{r.owner.Text(), obj{"method": "purge", "age": 5000}, "bad_argument"},
			{r.owner.Text(), obj{"method": "delete", "age": -1}, "malformed"},
			{r.owner.Text(), obj{"method": "delete", "older": 5000}, "malformed"},
		} {
			if got := r.ask("POST", space+"/older", c.ref, c.body); got.code() != c.code {
				t.Errorf("case %d: %d %s, want %s", i, got.status, got.text, c.code)
			}
		}
	})
}
