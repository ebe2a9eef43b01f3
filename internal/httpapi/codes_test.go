//go:build unix

// What requests are answered when a statement of the store fails with each of the codes that databases fail with.

package httpapi

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// failing is a server on a database whose statements can be told to fail.
type failing struct {
	*rig
	*stmtfault.Statements
}

// requests are those of the API, by operation, and to follow. Each may be made again.
func (d failing) requests() map[string]func() *reply {
	m := d.create()
	doomed, err := capability.ParseRef(d.share(m, obj{"rights": []string{"read"}}))
	if err != nil {
		d.t.Fatal(err)
	}
	space, at := "/spaces/"+d.owner.Target(), "/sessions/"+m.id
	spaceRef := d.must(201, "POST", space+"/refs", d.owner.Text(), obj{"rights": []string{"list"}})["ref"].(string)
	rotated := d.create()
	to, root := rotated.owner.New(rotated.id), d.owner.New(d.owner.Target())
	ask := func(method, path, ref string, body any) func() *reply {
		return func() *reply { return d.ask(method, path, ref, body) }
	}
	bySpace := func(method, path string, body any) func() *reply { // under its root ref, which changes
		return func() *reply { return d.ask(method, space+path, d.owner.Text(), body) }
	}
	var pending json.RawMessage // until it is taken: once
	withdrawable := strings.Fields(strings.Repeat("w ", 50))
	for i := range withdrawable {
		withdrawable[i] += fmt.Sprint(i)
	}
	for _, id := range append([]string{"open", "answered"}, withdrawable...) {
		d.must(201, "POST", at+"/requests", m.owner.Text(), obj{"request": id, "kind": "question"})
	}
	return map[string]func() *reply{
		"describeSpace":  bySpace("GET", "", nil),
		"listSessions":   bySpace("GET", "/sessions", nil),
		"createSession":  bySpace("POST", "/sessions", obj{}),
		"listSpaceRefs":  bySpace("GET", "/refs", nil),
		"shareSpace":     bySpace("POST", "/refs", obj{"rights": []string{"list"}}),
		"removeOlder":    bySpace("POST", "/older", obj{"method": "delete", "age": 1 << 30}),
		"revokeSpaceRef": bySpace("DELETE", "/refs/"+spaceRef, nil),
		"rotateSpace": func() *reply {
			got := d.ask("POST", space+"/rotate", d.owner.Text(), obj{"ref": root.ID, "hash": hashText(root.Secret)})
			if got.status == 201 {
				d.owner, root = root, root.New(root.Target())
			}
			return got
		},
		"auditSpace":      bySpace("GET", "/audit", nil),
		"describeSession": ask("GET", at, m.owner.Text(), nil),
		"statSession":     ask("GET", at+"/stat", m.owner.Text(), nil),
		"listChildren":    ask("GET", at+"/children", m.owner.Text(), nil),
		"state":           ask("GET", at+"/state?values=true", m.owner.Text(), nil),
		"search":          ask("GET", at+"/search?q=n", m.owner.Text(), nil),
		"events":          ask("GET", at+"/events?limit=3", m.owner.Text(), nil),
		"snapshot":        ask("GET", at+"/snapshot", m.owner.Text(), nil),
		"listRefs":        ask("GET", at+"/refs", m.owner.Text(), nil),
		"shareSession":    ask("POST", at+"/refs", m.owner.Text(), obj{"rights": []string{"read"}}),
		"revokeRef":       ask("DELETE", at+"/refs/"+doomed.ID, m.owner.Text(), nil),
		"rotateSession":   ask("POST", "/sessions/"+rotated.id+"/rotate", rotated.owner.Text(), obj{"ref": to.ID, "hash": hashText(to.Secret)}),
		"auditSession":    ask("GET", at+"/audit", m.owner.Text(), nil),
		"acknowledge":     ask("POST", at+"/acknowledge", m.owner.Text(), m.box.acknowledgement(1)),
		"ask": func() *reply {
			return d.ask("POST", at+"/requests", m.owner.Text(), obj{"request": "asked", "kind": "question"})
		},
		"answer":       ask("POST", at+"/requests/answered/answer", m.owner.Text(), obj{"payload": "yes"}),
		"listRequests": ask("GET", at+"/requests", m.owner.Text(), nil),
		"request":      ask("GET", at+"/requests/open?wait=1", m.owner.Text(), nil),
		"withdraw": func() *reply {
			got := d.ask("POST", at+"/requests/"+withdrawable[0]+"/withdraw", m.owner.Text(), obj{})
			if got.status == 200 {
				withdrawable = withdrawable[1:]
			}
			return got
		},
		"attenuated": func() *reply {
			return d.do(d.attenuated("GET", at, m.owner.Text(), nil, obj{"rights": []string{"read"}}))
		},
		"follow": func() *reply {
			s, refused := d.open(d.request("GET", at+"/events", m.owner.Text(), nil))
			if refused != nil {
				return refused
			}
			defer s.body.Close()
			got := &reply{status: 200}
			if e, ok := s.next(); ok && e.name == "ended" {
				_ = json.Unmarshal([]byte(e.data), &got.json)
			}
			return got
		},
		"applyBatch": func() *reply {
			if pending == nil {
				pending = m.box.json(m.box.batch(m.id, op("put", "key", fmt.Sprintf("message/m%d", m.box.seq+1), "payload", obj{"n": 1})))
			}
			got := d.ask("POST", at+"/batches", m.owner.Text(), pending)
			if got.status == 200 {
				pending = nil
				if n := wholeOf(got.json["applied"]) + wholeOf(got.json["duplicates"]); n != 1 {
					d.t.Errorf("%s", got.text)
				}
			}
			return got
		},
	}
}

// TestCodesAtStatements makes each request with each of some codes at its first statements, and all after them: it is answered
// with what the table says, and made again it is as if nothing had been. None is left out that the description has.
func TestCodesAtStatements(t *testing.T) {
	t.Parallel()
	teststore.OnFailing(t, func(t *testing.T, st *store.Store, s *stmtfault.Statements) {
		var log lockbuf.Buffer
		d := failing{start(t, st, func(c *node.Config, _ *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }), s}
		requests := d.requests()
		names, met := slices.Sorted(maps.Keys(requests)), map[string]bool{}
		for i, f := range d.Failures {
			for j, name := range names {
				if (i+j)%5 == 0 && d.check(name, requests[name], 1+i/5%3, f) {
					met[name] = true
				}
			}
		}
		described := map[string]bool{"follow": true, "attenuated": true} // beside their operations
		for _, item := range openAPI(t).doc.Paths.Map() {
			for _, op := range item.Operations() {
				described[op.OperationID] = op.OperationID != "description" // which needs no database
			}
		}
		for name, is := range described {
			if met[name] != is {
				t.Errorf("%s: a statement failed: %t", name, met[name])
			}
		}
		if text := log.String(); strings.Contains(text, "unexpected error") {
			t.Errorf("logged %s", text)
		}
	})
}

// check makes a request with its at-th statement, and all after it, failing, and then with none. It says whether there was one.
func (d failing) check(name string, request func() *reply, at int, f stmtfault.Failure) (met bool) {
	d.t.Helper()
	var got *reply
	failed, _ := d.During(at, f, func() error { got = request(); return nil })
	if len(failed) == 0 {
		return false
	}
	label := fmt.Sprintf("%s, %s at %d, %.60q", name, f, at, failed[0])
	if want := f.Cause().Code().String(); got.code() != "" && (got.code() != want || got.status < 500 && got.status != 200) || at == 1 && got.code() == "" {
		d.t.Errorf("%s: %d %s, want %s", label, got.status, got.text, want)
	}
	if again := request(); again.code() != "" {
		d.t.Errorf("%s, then again: %d %s", label, again.status, again.text)
	}
	return true
}
