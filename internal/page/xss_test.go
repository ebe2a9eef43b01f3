package page_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/page/internal/recorded"
	"github.com/mooring-rpc/mooring/internal/session"
)

// corpus reads testdata/xss.txt.
func corpus(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/xss.txt")
	if err != nil {
		t.Fatal(err)
	}
	var payloads []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "## ") {
			payloads = append(payloads, line)
		}
	}
	if len(payloads) < 150 {
		t.Fatalf("only %d payloads", len(payloads))
	}
	return payloads
}

// filled is a JSON value with every string in it, but those that say of what kind
// it is, replaced by payload.
func filled(v any, payload string) any {
	switch v := v.(type) {
	case string:
		return payload
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = filled(v[i], payload)
		}
		return all
	case map[string]any:
		all := map[string]any{payload: payload}
		for name, value := range v {
			if text, ok := value.(string); ok && (name == "type" || name == "tool" || name == "status" || name == "role") {
				all[name] = text
				continue
			}
			all[name] = filled(value, payload)
		}
		return all
	}
	return v
}

// Every payload in every string field of every kind of part, of messages, of the
// session's info, of diffs and of models.
func TestXSS(t *testing.T) {
	t.Parallel()
	kinds, err := recorded.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for key, e := range kinds.Entries {
		var v any
		if err := json.Unmarshal(e.Payload, &v); err != nil {
			t.Fatal(err)
		}
		values[key] = v
	}
	blocks := 0
	for _, payload := range corpus(t) {
		for key, v := range values {
			text, err := json.Marshal(filled(v, payload))
			if err != nil {
				t.Fatal(err)
			}
			html := page.Block(&session.Entry{Key: key, Payload: text, LastAppend: kinds.Entries[key].LastAppend}, session.Change{}, kinds.Turns[strings.TrimPrefix(key, "message/")])
			sound(t, key+" with "+payload, html)
			blocks++
		}
	}
	if blocks < 150*40 {
		t.Fatalf("only %d blocks", blocks)
	}
}

// The fields that say of what kind a thing is may be payloads too.
func TestXSSInKinds(t *testing.T) {
	t.Parallel()
	for _, payload := range corpus(t) {
		quoted, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, shape := range []string{`{"type":"tool","tool":"bash","state":{"status":X}}`, `{"type":"tool","tool":X,"state":{"status":"error","error":X}}`, `{"type":X}`, `{"type":X,"text":X}`, `{"type":"tool","tool":"task","state":{"metadata":{"sessionId":X}}}`,
			`{"type":"tool","tool":"todowrite","state":{"input":{"todos":[{"status":X,"content":X}]}}}`} {
			sound(t, payload, page.Block(&session.Entry{Key: "part/m/p", Payload: []byte(strings.ReplaceAll(shape, "X", string(quoted)))}, session.Change{}, nil))
		}
		for _, shape := range []string{`{"role":X}`, `{"role":"user","summary":{"diffs":[{"status":X,"file":X,"patch":X}]}}`} {
			sound(t, payload, page.Block(&session.Entry{Key: "message/m", Payload: []byte(strings.ReplaceAll(shape, "X", string(quoted)))}, session.Change{}, nil))
		}
	}
}

// And so may what pages are told from elsewhere: titles, queries, faults.
func TestXSSInPages(t *testing.T) {
	t.Parallel()
	for _, payload := range corpus(t) {
		var b bytes.Buffer
		d := page.Start(&b, page.Head{Title: payload, ID: payload, Live: "/s/x/live", Over: fault.Revoked.With("%s", payload), May: []string{"revert", "fork"}, State: page.State{
			Revert: session.Revert{To: "message/m", Actor: payload, At: 1}, Compaction: session.Compaction{Upto: "message/m", Summary: "message/m"},
			Children: []*session.Listing{{Row: session.Row{ID: "ses_1", Created: 1, Parent: session.Parent{Key: payload}}}}, Opens: "/sessions/", More: true}})
		d.Message(&session.Entry{Key: "message/m", Payload: []byte(`{"role":"user"}`)}, nil)
		text, err := json.Marshal(map[string]string{"type": "text", "text": payload})
		if err != nil {
			t.Fatal(err)
		}
		d.Part(&session.Entry{Key: "part/m/p", Payload: text}) // names the entry of the contents
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		soundPage(t, payload, b.String())
		b.Reset()
		row := page.Row{Title: payload, ID: payload, External: payload, Link: "/s/ses_1", Public: "/share/x", By: payload, Running: true, Bytes: 5}
		if err := page.Sessions(&b, page.List{Query: payload, Order: payload, Rows: []page.Row{row}}); err != nil {
			t.Fatal(err)
		}
		soundPage(t, payload, b.String())
		b.Reset()
		hits := []*session.Found{hit("todo/1", payload, session.Change{Actor: payload, Ref: payload}, payload, payload, payload), hit("part/m/p", payload, session.Change{}, payload, payload, payload)}
		if err := page.Found(&b, page.Search{Path: "/share/x", Query: payload, Info: &session.Entry{Key: "session", Payload: text}, Found: hits, Who: map[string]string{"m": payload}, Next: "/share/x", Refused: fault.BadArgument.With("%s", payload)}); err != nil {
			t.Fatal(err)
		}
		soundPage(t, payload, b.String())
		b.Reset()
		g := &capability.Grant{ID: "ses_1.o", Label: payload, Actor: payload, Message: payload, Methods: []string{payload}, ReadKeys: []string{payload}, WriteKeys: []string{payload}, Rights: capability.Read, Created: 1}
		audit := []*capability.AuditRow{{Seq: 1, At: 1, Act: capability.AuditDenial, Ref: payload, Actor: payload, Subject: payload, Peer: payload, Reason: fault.Revoked, Count: 2}}
		if err := page.AccessPage(&b, page.Access{Path: "/s/x", Title: payload, May: []string{"share", "revoke", "epoch", "rotate"}, Rights: capability.Read, Tree: []page.Ref{{Grant: g}, {Grant: g, Depth: 1}, {Grant: g, Depth: 2}, {Grant: g, Depth: 1}}, Audit: audit, AuditOlder: "/s/x/access?before=1"}); err != nil {
			t.Fatal(err)
		}
		soundPage(t, payload, b.String())
		b.Reset()
		if err := page.Failure(&b, "", 404, fault.NotFound.With("%s", payload)); err != nil {
			t.Fatal(err)
		}
		soundPage(t, payload, b.String())
		b.Reset()
		if err := page.Unlock(&b, "", payload); err != nil {
			t.Fatal(err)
		}
		soundPage(t, payload, b.String())
	}
}
