package uimessage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
)

// Each kind of part and state of a session: what is exported of it, and that it comes back as it was. "I" stands for the members that
// every part has.
func TestParts(t *testing.T) {
	t.Parallel()
	const ids = `"id":"p1","sessionID":"ses_1","messageID":"m1"`
	for name, c := range map[string]struct{ part, want string }{
		"text":                     {`{I,"type":"text","text":"Hi"}`, `{"type":"text","text":"Hi","providerMetadata":{"mooring":{"id":"p1"}}}`},
		"text of the agent's":      {`{I,"type":"text","text":"Hi","synthetic":true}`, `{"type":"text","text":"Hi","providerMetadata":{"mooring":{"id":"p1","synthetic":true}}}`},
		"text that grows":          {`{I,"type":"text","text":"H","time":{"start":1}}`, `{"type":"text","text":"H","state":"streaming","providerMetadata":{"mooring":{"id":"p1","time":{"start":1}}}}`},
		"text that has ended":      {`{I,"type":"text","text":"H","time":{"start":1,"end":2}}`, `{"type":"text","text":"H","state":"done","providerMetadata":{"mooring":{"id":"p1","time":{"start":1,"end":2}}}}`},
		"text with metadata":       {`{I,"type":"text","text":"","metadata":{"openai":{"itemId":"x"}}}`, `{"type":"text","text":"","providerMetadata":{"openai":{"itemId":"x"},"mooring":{"id":"p1"}}}`},
		"text with other metadata": {`{I,"type":"text","text":"","metadata":{"a":1}}`, `{"type":"text","text":"","providerMetadata":{"mooring":{"id":"p1","metadata":{"a":1}}}}`},
		"text that no model sees":  {`{I,"type":"text","text":"Hi","ignored":true}`, `{"type":"data-text","id":"p1","data":{"ignored":true,"text":"Hi"}}`},
		"text that is none":        {`{I,"type":"text","text":5}`, `{"type":"data-text","id":"p1","data":{"text":5}}`},
		"text of another session":  {`{"id":"p1","sessionID":"ses_2","messageID":"m1","type":"text","text":""}`, `{"type":"text","text":"","providerMetadata":{"mooring":{"id":"p1","sessionID":"ses_2"}}}`},
		"reasoning":                {`{I,"type":"reasoning","text":"Hm","metadata":{"anthropic":{"signature":"s"}},"time":{"start":1,"end":2}}`, `{"type":"reasoning","text":"Hm","state":"done","providerMetadata":{"anthropic":{"signature":"s"},"mooring":{"id":"p1","time":{"start":1,"end":2}}}}`},
		"file":                     {`{I,"type":"file","mime":"text/plain","filename":"a","url":"data:,a","source":{"x":1}}`, `{"type":"file","mediaType":"text/plain","filename":"a","url":"data:,a","providerMetadata":{"mooring":{"id":"p1","source":{"x":1}}}}`},
		"file without a name":      {`{I,"type":"file","mime":"a/b","filename":null,"url":"file:///a"}`, `{"type":"file","mediaType":"a/b","url":"file:///a","providerMetadata":{"mooring":{"id":"p1","filename":null}}}`},
		"file without a whole URL": {`{I,"type":"file","mime":"a/b","url":"a.txt"}`, `{"type":"data-file","id":"p1","data":{"mime":"a/b","url":"a.txt"}}`},
		"tool, pending": {`{I,"type":"tool","callID":"c1","tool":"read","state":{"status":"pending","input":{},"raw":""}}`,
			`{"type":"dynamic-tool","toolName":"read","toolCallId":"c1","state":"input-streaming","input":{},"toolMetadata":{"mooring":{"id":"p1","state":{"raw":""}}}}`},
		"tool, pending, begun": {`{I,"type":"tool","callID":"c1","tool":"read","state":{"status":"pending","input":{},"raw":"{\"a"}}`,
			`{"type":"dynamic-tool","toolName":"read","toolCallId":"c1","state":"input-streaming","input":{},"rawInput":"{\"a","toolMetadata":{"mooring":{"id":"p1","state":{}}}}`},
		"tool, running": {`{I,"type":"tool","callID":"c1","tool":"read","state":{"status":"running","input":{"a":1.50},"title":"Read","time":{"start":1}}}`,
			`{"type":"dynamic-tool","toolName":"read","toolCallId":"c1","title":"Read","state":"input-available","input":{"a":1.50},"toolMetadata":{"mooring":{"id":"p1","state":{"time":{"start":1}}}}}`},
		"tool, completed": {`{I,"type":"tool","callID":"c1","tool":"read","state":{"status":"completed","input":{},"output":"ok","metadata":{"n":1},"time":{"start":1,"end":2}},"metadata":{"openai":{"itemId":"x"}}}`,
			`{"type":"dynamic-tool","toolName":"read","toolCallId":"c1","state":"output-available","input":{},"output":"ok","callProviderMetadata":{"openai":{"itemId":"x"}},"toolMetadata":{"mooring":{"id":"p1","state":{"metadata":{"n":1},"time":{"start":1,"end":2}}}}}`},
		"a plan": {`{I,"type":"tool","callID":"plan","tool":"todowrite","state":{"status":"completed","input":{"todos":[]},"title":"Plan","time":{"start":1,"end":1}}}`,
			`{"type":"dynamic-tool","toolName":"todowrite","toolCallId":"plan","title":"Plan","state":"output-available","input":{"todos":[]},"output":null,"toolMetadata":{"mooring":{"id":"p1","state":{"time":{"start":1,"end":1}}}}}`},
		"tool, failed": {`{I,"type":"tool","callID":"c1","tool":"read","state":{"status":"error","input":{},"output":{"a":1},"error":"no"}}`,
			`{"type":"dynamic-tool","toolName":"read","toolCallId":"c1","state":"output-error","input":{},"errorText":"no","toolMetadata":{"mooring":{"id":"p1","state":{"output":{"a":1}}}}}`},
		"tool, failed by an object": {`{I,"type":"tool","callID":"c1","tool":"read","state":{"status":"error","input":{},"error":{"a":"b"}}}`,
			`{"type":"dynamic-tool","toolName":"read","toolCallId":"c1","state":"output-error","input":{},"errorText":"{\"a\":\"b\"}","toolMetadata":{"mooring":{"id":"p1","state":{"error":{"a":"b"}}}}}`},
		"tool, in no state that is known": {`{I,"type":"tool","callID":"c1","tool":"read","state":{"status":"odd","input":{},"output":"x"}}`,
			`{"type":"dynamic-tool","toolName":"read","toolCallId":"c1","state":"input-available","input":{},"toolMetadata":{"mooring":{"id":"p1","state":{"output":"x","status":"odd"}}}}`},
		"edit of an agent": {`{I,"type":"tool","callID":"c1","tool":"edit","state":{"status":"completed","input":{},"output":"","metadata":{"kind":"edit","files":[{"file":"a","before":"1","after":"2"}]}}}`,
			`{"type":"dynamic-tool","toolName":"edit","toolCallId":"c1","state":"output-available","input":{},"output":"","toolMetadata":{"mooring":{"id":"p1","diff":"files","state":{"metadata":{"kind":"edit"}}}}},` +
				`{"type":"data-diff","data":{"toolCallId":"c1","files":[{"file":"a","before":"1","after":"2"}]}}`},
		"edit of opencode": {`{I,"type":"tool","callID":"c1","tool":"edit","state":{"status":"completed","input":{},"output":"","metadata":{"diff":"d","filediff":{"file":"a","patch":"d"}}}}`,
			`{"type":"dynamic-tool","toolName":"edit","toolCallId":"c1","state":"output-available","input":{},"output":"","toolMetadata":{"mooring":{"id":"p1","diff":"filediff","state":{"metadata":{"diff":"d"}}}}},` +
				`{"type":"data-diff","data":{"toolCallId":"c1","files":[{"file":"a","patch":"d"}]}}`},
		"tool without a state": {`{I,"type":"tool","callID":"c1","tool":"read"}`, `{"type":"data-tool","id":"p1","data":{"callID":"c1","tool":"read"}}`},
		"step-start":           {`{I,"type":"step-start","snapshot":"s"}`, `{"type":"step-start"},{"type":"data-step-start","id":"p1","data":{"snapshot":"s"}}`},
		"step-finish":          {`{I,"type":"step-finish","reason":"stop","cost":0.1,"tokens":{"input":1}}`, `{"type":"data-step-finish","id":"p1","data":{"cost":0.1,"reason":"stop","tokens":{"input":1}}}`},
		"patch":                {`{I,"type":"patch","hash":"h","files":["a"]}`, `{"type":"data-patch","id":"p1","data":{"files":["a"],"hash":"h"}}`},
		"snapshot":             {`{I,"type":"snapshot","snapshot":"s"}`, `{"type":"data-snapshot","id":"p1","data":{"snapshot":"s"}}`},
		"agent":                {`{I,"type":"agent","name":"a"}`, `{"type":"data-agent","id":"p1","data":{"name":"a"}}`},
		"retry":                {`{I,"type":"retry","attempt":1,"error":{}}`, `{"type":"data-retry","id":"p1","data":{"attempt":1,"error":{}}}`},
		"compaction":           {`{I,"type":"compaction","auto":true}`, `{"type":"data-compaction","id":"p1","data":{"auto":true}}`},
		"subtask":              {`{I,"type":"subtask","prompt":"p"}`, `{"type":"data-subtask","id":"p1","data":{"prompt":"p"}}`},
		"of a type to come":    {`{I,"type":"x-1","data":{"id":"y"}}`, `{"type":"data-x-1","id":"p1","data":{"data":{"id":"y"}}}`},
		"without a type":       {`{I,"a":1}`, `{"type":"data-","id":"p1","data":{"a":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := strings.Replace(c.part, "{I", "{"+ids, 1)
			puts := []opencode.Put{
				{Key: "message/m1", Payload: []byte(`{"id":"m1","sessionID":"ses_1","role":"assistant","time":{"created":1}}`)},
				{Key: "part/m1/p1", Payload: []byte(part)},
			}
			want := `[` + "\n" + `{"id":"m1","role":"assistant","metadata":{"mooring":{"sessionID":"ses_1","time":{"created":1}}},"parts":[` + c.want + `]}` + "\n]\n"
			if got := exported(t, puts); string(got) != want {
				t.Errorf("exported\n%s\nwant\n%s", got, want)
			}
			same(t, puts, putsOf(read(t, []byte(want))))
		})
	}
}

// A text whose message is complete grows no more, whatever it says itself.
func TestTextOfACompleteMessage(t *testing.T) {
	t.Parallel()
	puts := []opencode.Put{
		{Key: "message/m1", Payload: []byte(`{"id":"m1","role":"assistant","time":{"created":1,"completed":2}}`)},
		{Key: "part/m1/p1", Payload: []byte(`{"id":"p1","messageID":"m1","type":"text","text":"H","time":{"start":1}}`)},
	}
	if got := exported(t, puts); !strings.Contains(string(got), `"state":"done"`) {
		t.Errorf("%s", got)
	}
}

// Messages, and what is the session's.
func TestMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		puts []opencode.Put
		want string
	}{
		"of a user, without parts": {
			[]opencode.Put{{Key: "message/m1", Payload: []byte(`{"id":"m1","sessionID":"s","role":"user"}`)}},
			`{"id":"m1","role":"user","metadata":{"mooring":{"sessionID":"s"}},"parts":[{"type":"data-empty","data":{}}]}`,
		},
		"of nobody that is known": {
			[]opencode.Put{{Key: "message/m1", Payload: []byte(`{"id":"m1","sessionID":"s","role":"tool"}`)}},
			`{"id":"m1","role":"assistant","metadata":{"mooring":{"role":"tool","sessionID":"s"}},"parts":[]}`,
		},
		"with the session": {
			[]opencode.Put{
				{Key: "session", Payload: []byte(`{"id":"ses_1","title":"T","parentID":"ses_0"}`)},
				{Key: "session_diff", Payload: []byte(`{"diff":[{"file":"a"}]}`)},
				{Key: "message/m1", Payload: []byte(`{"id":"m1","sessionID":"ses_1","role":"user"}`)},
				{Key: "message/m2", Payload: []byte(`{"id":"m2","sessionID":"ses_1","role":"system"}`)},
				{Key: "part/m2/p1", Payload: []byte(`{"id":"p1","sessionID":"ses_1","messageID":"m2","type":"text","text":"S"}`)},
			},
			`{"id":"m1","role":"user","metadata":{"mooring":{"sessionID":"ses_1"}},"parts":[{"type":"data-session","data":{"info":{"id":"ses_1","title":"T","parentID":"ses_0"},"diff":[{"file":"a"}]}}]},` + "\n" +
				`{"id":"m2","role":"system","metadata":{"mooring":{"sessionID":"ses_1"}},"parts":[{"type":"text","text":"S","providerMetadata":{"mooring":{"id":"p1"}}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := exported(t, c.puts)
			if want := "[\n" + c.want + "\n]\n"; string(got) != want {
				t.Errorf("exported\n%s\nwant\n%s", got, want)
			}
			same(t, c.puts, putsOf(read(t, got)))
		})
	}
}

func TestWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	d := NewExport([]opencode.Put{
		{Key: "todo/1", Payload: []byte(`{}`)}, {Key: "model/x", Payload: []byte(`{}`)}, {Key: "request/r", Payload: []byte(`{}`)},
		{Key: "part/m1/p1", Payload: []byte(`{}`)}, {Key: "message/m2", Payload: []byte(`{}`)}, {Key: "part/m3/p1", Payload: []byte(`{}`)}, {Key: "message/m3", Payload: []byte(`{}`)},
	})
	if d.LeftOut != 3 || d.Orphans != 1 || d.Messages() != 2 || len(d.messages[1].parts) != 1 {
		t.Errorf("%+v", d)
	}
	if got := exported(t, nil); string(got) != "[]\n" {
		t.Errorf("nothing is %q", got)
	}
}

// The URLs of files: the AI SDK makes a URL of each, which must not fail (e2e/aisdk asks the real one).
func TestURLs(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"data:text/plain;base64,aGk=", "file:///home/x/a%20b.txt", "https://example.org", "HTTP://example.org:8080/a?b#c", "https://1.2.3.4/x", "https://[::1]:80/", "blob:x",
		"mailto:a@b.org", "mcp://server/a", "urn:x:y", "zed:///a",
	} {
		if !isURL(good) {
			t.Errorf("%s is none", good)
		}
	}
	for _, bad := range []string{
		"", "a.txt", "/a", "//x/a", "http:", "https://", "https:///a", "https://a b/", "https://1.2.3.999/", "https://a:99999/", "https://a:b/", "file://host/a", "://", "1a:b", "https://[::1", "mcp://a<b/",
		"https://xn--a/", "https://a.xn--0/", "https://1.2.3/", "https://a..1/", "https://./", "%", "http://%zz/", "https://a%41/",
	} {
		if isURL(bad) {
			t.Errorf("%s is one", bad)
		}
	}
}

// Of equal names the last counts, as in JavaScript, in objects of any number of members.
func TestRepeatedMembers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 15, 16, 17, 100} {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `"k%d":%d,`, i, i)
		}
		o, ok := parse([]byte("{" + text.String() + text.String() + `"k0":"last"}`))
		if !ok || len(o) != n || string(o[0].value) != `"last"` || n > 1 && string(o.get("k1")) != "1" {
			t.Errorf("of %d: %d members, %s", n, len(o), o.bytes())
		}
		if again, _ := parse(o.bytes()); !equal(again.bytes(), o.sorted().bytes()) || equal(again.bytes(), o[1:].bytes()) {
			t.Errorf("of %d: not equal", n)
		}
	}
}
