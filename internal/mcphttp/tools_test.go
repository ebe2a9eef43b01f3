package mcphttp

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/mcpserver"
)

func allowAll(c *Config) { c.Allow = []string{mcpserver.AllowAppend, mcpserver.AllowAsk} }

func TestTools(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		for _, c := range []struct {
			allow []string
			want  []string
		}{
			{nil, nil},
			{[]string{"append"}, []string{"append_message", "put_value"}},
			{[]string{"append", "ask", "share"}, []string{"append_message", "put_value", "ask", "wait_answer"}},
		} {
			r := start(t, func(cfg *Config) { cfg.Allow = c.allow })
			m := r.connect(version, r.owner)
			want := append([]string{"list_sessions", "read_session", "read_message", "list_keys", "read_value", "search_session", "list_requests"}, c.want...)
			slices.Sort(want)
			var got []string
			for tool, err := range m.Tools(within(t), nil) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, tool.Name)
				reads := !slices.Contains([]string{"append_message", "put_value", "ask"}, tool.Name)
				if tool.Annotations.ReadOnlyHint != reads || *tool.Annotations.DestructiveHint != (tool.Name == "put_value") || tool.OutputSchema == nil || len(tool.Description) < 60 {
					t.Errorf("%s: %+v", tool.Name, tool.Annotations)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("allowed %v, the tools are %v, want %v", c.allow, got, want)
			}
		}
	})
}

// TestDocs: the page names every tool and no other.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Tools\n")
	table, _, _ = strings.Cut(table, "\n`mooring mcp --allow")
	var named []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range strings.Split(row[1], ", ") {
			named = append(named, strings.Trim(name, "`"))
		}
	}
	r := start(t, allowAll)
	tools := []string{"share"} // of mooring mcp
	for tool, err := range r.connect(versions[0], r.owner).Tools(within(t), nil) {
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool.Name)
	}
	slices.Sort(named)
	if slices.Sort(tools); !slices.Equal(named, tools) {
		t.Errorf("docs/mcp.md names %v, the tools are %v", named, tools)
	}
}

func TestReading(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, nil)
		texts := make([]string, 25)
		for i := range texts {
			texts[i] = fmt.Sprintf("text %d", i)
		}
		s := r.create("the parser", texts...)
		r.create("another")
		m := r.connect(version, r.owner)
		if got := list(m.must("list_sessions", nil), "sessions", "title"); !slices.Equal(got, []string{"another", "the parser"}) {
			t.Errorf("listed %v", got)
		}
		page := m.must("list_sessions", obj{"limit": 1})
		if got := list(m.must("list_sessions", obj{"limit": 1, "after": page["next"]}), "sessions", "session"); !slices.Equal(got, []string{s.ID()}) {
			t.Errorf("the second page is %v", got)
		}
		if got := list(m.must("list_sessions", obj{"search": "PARS"}), "sessions", "session"); !slices.Equal(got, []string{s.ID()}) {
			t.Errorf("found %v", got)
		}

		// All messages, page by page: from the newest back, and from the first on.
		var back []string
		for before := any(""); before != nil; {
			page := m.must("read_session", obj{"session": s.ID(), "before": before})
			back = append(list(page, "messages", "text"), back...)
			before = page["earlier"]
		}
		if !slices.Equal(back, texts) {
			t.Errorf("read %v backwards", back)
		}
		on := texts[:1]
		for after := any("msg_000"); after != nil; {
			page := m.must("read_session", obj{"session": s.ID(), "after": after, "limit": 7})
			on = append(on, list(page, "messages", "text")...)
			after = page["later"]
		}
		if !slices.Equal(on, texts) {
			t.Errorf("read %v forwards", on)
		}
		if got := m.must("read_session", obj{"session": s.ID(), "after": "msg_024"}); len(list(got, "messages", "text")) != 0 || got["later"] != nil {
			t.Errorf("after the last is %v", got)
		}

		if got := m.must("search_session", obj{"session": s.ID(), "query": "24"}); !slices.Equal(list(got, "matches", "message"), []string{"msg_024"}) || !slices.Equal(list(got, "matches", "excerpt"), []string{"text 24"}) {
			t.Errorf("found %v", got)
		}
		b := s.Batch()
		b.Put("todo/1", obj{"text": "tidy"})
		b.Put("todo/2", 7)
		r.commit(b)
		if got := list(m.must("list_keys", obj{"session": s.ID(), "prefix": "todo/"}), "keys", "key"); !slices.Equal(got, []string{"todo/1", "todo/2"}) {
			t.Errorf("the keys are %v", got)
		}
		if got := m.must("read_value", obj{"session": s.ID(), "key": "todo/1"}); got["value"] != `{"text":"tidy"}` {
			t.Errorf("the value is %v", got)
		}
	})
}

// TestLongTexts: what is long comes in pieces, of which nothing is missing.
func TestLongTexts(t *testing.T) {
	r := start(t, nil)
	long := strings.Repeat("äöü\x01 \"quoted\" <tag> 🙂\n", 2000)
	s := r.create("long", long, "short")
	b := s.Batch()
	b.Put("part/msg_000/prt_2", obj{"type": "reasoning", "text": "because"})
	b.Put("part/msg_000/prt_3", obj{"type": "tool", "tool": "bash", "state": obj{"status": "completed", "input": obj{"command": "ls"}, "output": long}})
	b.Put("part/msg_000/prt_4", obj{"type": "file", "filename": "a.png", "mime": "image/png", "url": "data:image/png;base64,AAAA"})
	b.Put("big", long)
	r.commit(b)
	m := r.connect(versions[0], r.owner)
	outline := m.must("read_session", obj{"session": s.ID()})
	first := outline["messages"].([]any)[0].(obj)
	if text := first["text"].(string); first["cut"] != true || !strings.HasPrefix(long, text) || len(text) < 300 {
		t.Errorf("the outline has %v", first)
	}
	texts := map[string]string{}
	pages := 0
	for after := any(""); after != nil; pages++ {
		page := m.must("read_message", obj{"session": s.ID(), "message": "msg_000", "after": after})
		for _, p := range page["parts"].([]any) {
			id, _ := p.(obj)["part"].(string)
			texts[id] += p.(obj)["text"].(string)
		}
		after = page["next"]
	}
	if texts["prt_1"] != long || !strings.HasSuffix(texts["prt_3"], long) || !strings.HasPrefix(texts["prt_3"], "[tool bash, completed]\ninput: {\"command\":\"ls\"}\n") ||
		texts["prt_2"] != "[reasoning]\nbecause" || texts["prt_4"] != "[file a.png image/png]" || pages < 10 {
		t.Errorf("%d pages: %d and %d of %d bytes, %q, %q", pages, len(texts["prt_1"]), len(texts["prt_3"]), len(long), texts["prt_2"], texts["prt_4"])
	}
	value, pieces := "", 0
	for offset := any(0); offset != nil; pieces++ {
		piece := m.must("read_value", obj{"session": s.ID(), "key": "big", "offset": offset})
		value += piece["value"].(string)
		offset = piece["next"]
	}
	if entry, err := s.Get(within(t), "big"); err != nil || value != string(entry.Entries[0].Payload) || pieces < 5 {
		t.Errorf("%d pieces, %d bytes, %v", pieces, len(value), err)
	}
}

// TestFullPages: messages that do not fit in one result are in the next.
func TestFullPages(t *testing.T) {
	r := start(t, nil)
	texts := make([]string, 40)
	for i := range texts {
		texts[i] = fmt.Sprintf("%d %s", i, strings.Repeat("x", 900))
	}
	s := r.create("full", texts...)
	m := r.connect(versions[0], r.owner)
	var back []string
	for before := any(""); before != nil; {
		page := m.must("read_session", obj{"session": s.ID(), "before": before, "limit": 50})
		back = append(list(page, "messages", "text"), back...)
		before = page["earlier"]
	}
	on := texts[:1]
	for after := any("msg_000"); after != nil; {
		page := m.must("read_session", obj{"session": s.ID(), "after": after, "limit": 50})
		on = append(on, list(page, "messages", "text")...)
		after = page["later"]
	}
	if !slices.Equal(back, texts) || !slices.Equal(on, texts) {
		t.Errorf("read %d backwards, %d forwards, of %d", len(back), len(on), len(texts))
	}
}

func TestWriting(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, allowAll)
		s := r.create("s", "hello")
		m := r.connect(version, r.share(s, client.ShareOptions{Rights: capability.Read | capability.Append, Actor: "owner/model"}))
		out := m.must("append_message", obj{"session": s.ID(), "text": "a note"})
		page := m.must("read_session", obj{"session": s.ID(), "after": "msg_000"})
		got := page["messages"].([]any)[0].(obj)
		if got["message"] != out["message"] || got["text"] != "a note" || got["role"] != "assistant" || got["by"] != "owner/model" {
			t.Errorf("appended %v", got)
		}

		// The same again changes nothing; another of the same id is refused.
		for i := range 3 {
			out := m.must("append_message", obj{"session": s.ID(), "id": "mine", "text": "once", "role": "user"})
			if (out["before"] == true) != (i > 0) {
				t.Errorf("call %d came to %v", i, out)
			}
		}
		m.refuses("conflict", "append_message", obj{"session": s.ID(), "id": "mine", "text": "twice", "role": "user"})
		if page := m.must("read_session", obj{"session": s.ID()}); !slices.Equal(list(page, "messages", "text"), []string{"hello", "a note", "once"}) {
			t.Errorf("the messages are %v", list(page, "messages", "text"))
		}

		put := m.must("put_value", obj{"session": s.ID(), "key": "todo/1", "value": obj{"n": int64(9007199254740993)}, "expect": 0})
		if got := m.must("read_value", obj{"session": s.ID(), "key": "todo/1"}); got["value"] != `{"n":9007199254740993}` || got["cursor"] != put["cursor"] {
			t.Errorf("put %v, read %v", put, got)
		}
		m.refuses("conflict", "put_value", obj{"session": s.ID(), "key": "todo/1", "value": 1, "expect": 0})
		m.must("put_value", obj{"session": s.ID(), "key": "todo/1", "value": nil, "expect": put["cursor"]})
		for _, key := range []string{"message/msg_000", "part/msg_000/prt_1", "session", "request/r", "request/r/state", "schema/todo", "model/m", "x y"} {
			m.refuses("bad_key", "put_value", obj{"session": s.ID(), "key": key, "value": obj{}})
		}
	})
}

func TestAsking(t *testing.T) {
	onVersions(t, func(t *testing.T, version string) {
		r := start(t, allowAll)
		s := r.create("s", "hello")
		m := r.connect(version, r.share(s, client.ShareOptions{Rights: capability.Read | capability.Ask}))
		asked := m.must("ask", obj{"session": s.ID(), "kind": "question", "text": "which?", "id": "q1", "choices": []obj{{"id": "a", "label": "the first"}, {"id": "b"}}})
		if again := m.must("ask", obj{"session": s.ID(), "kind": "question", "text": "which?", "id": "q1", "choices": []obj{{"id": "a", "label": "the first"}, {"id": "b"}}}); asked["request"] != "q1" || again["request"] != "q1" {
			t.Errorf("asked %v, then %v", asked, again)
		}
		if got := m.must("list_requests", obj{"session": s.ID()}); !slices.Equal(list(got, "requests", "text"), []string{"which?"}) {
			t.Errorf("the requests are %v", got)
		}
		if got := m.must("wait_answer", obj{"session": s.ID(), "request": "q1", "seconds": 1}); got["ended"] != nil || got["state"] != "open" {
			t.Errorf("it has come to %v", got)
		}
		waited := make(chan obj)
		go func() {
			defer close(waited) // even if it fails
			waited <- m.must("wait_answer", obj{"session": s.ID(), "request": "q1", "seconds": 20})
		}()
		b := s.Batch()
		b.Answer("q1", client.AnswerOptions{Choice: "b", Payload: obj{"text": "since"}})
		r.commit(b)
		if got := <-waited; got["ended"] != true || got["state"] != "answered" || got["choice"] != "b" || got["answer"] != "since" {
			t.Errorf("it has come to %v", got)
		}
		if got := m.must("list_requests", obj{"session": s.ID()}); len(list(got, "requests", "text")) != 0 {
			t.Errorf("the requests are %v", got)
		}
		m.must("ask", obj{"session": s.ID(), "kind": "prompt", "text": "run the tests", "expires_seconds": 60})
		m.refuses("bad_argument", "ask", obj{"session": s.ID(), "kind": "permission", "text": "may I?"})
		m.refuses("bad_argument", "ask", obj{"session": s.ID(), "kind": "other", "text": "?"})
		m.refuses("not_found", "wait_answer", obj{"session": s.ID(), "request": "none", "seconds": 1})
	})
}

// TestPermissionsAreOnlyShown: no call can answer one.
func TestPermissionsAreOnlyShown(t *testing.T) {
	r := start(t, allowAll)
	s := r.create("s")
	b := s.Batch()
	id, _ := b.Ask(client.KindPermission, obj{"text": "rm -rf"}, client.AskOptions{Choices: []client.Choice{{ID: "once", Kind: "allow_once"}}})
	r.commit(b)
	m := r.connect(versions[0], r.owner)
	if got := m.must("list_requests", obj{"session": s.ID(), "kinds": []string{"permission"}}); !slices.Equal(list(got, "requests", "request"), []string{id}) {
		t.Errorf("the requests are %v", got)
	}
	m.refuses("bad_key", "put_value", obj{"session": s.ID(), "key": "request/" + id + "/state", "value": obj{"state": "answered", "choice": "once"}})
	for tool, err := range m.Tools(within(t), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(tool.Name, "answer") && tool.Name != "wait_answer" || strings.Contains(tool.Name, "permission") {
			t.Errorf("there is a tool %s", tool.Name)
		}
	}
}
