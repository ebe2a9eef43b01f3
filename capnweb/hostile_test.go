// Messages that break the rules, one by one: each ends the connection with its reason, and nothing is left.

package capnweb

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// bare is a connection with something in its tables: results 1 (a list) and 2 (a pipe), an export -1 of ours, an import
// -1 (a stub) and -2 (a promise) of theirs.
func bare(t *testing.T, lim Limits) (*Conn, *LimitHits) {
	a, _ := Pipe()
	hits := new(LimitHits)
	c := NewConn(a, Config{Main: NewMethods(map[string]any{
		"echo": func(v any) any { return v },
		"hold": func(c *Call, v any) {},
		"obj":  func() Object { return NewMethods(nil) },
	}), Limits: lim, LimitHits: hits})
	for _, m := range []string{`["push",[[1,[[2]]]]]`, `["pipe"]`, `["push",["pipeline",0,["obj"],[]]]`, `["pull",3]`,
		`["push",["pipeline",0,["hold"],[["export",-1]]]]`, `["push",["pipeline",0,["hold"],[["promise",-2]]]]`} {
		if err := say(c, m); err != nil {
			t.Fatal(m, err)
		}
	}
	return c, hits
}

func say(c *Conn, m string) error {
	var b []peerconn.Task
	err := c.handleMessage([]byte(m), via{c: c, tasks: &b})
	for _, t := range b {
		c.loop.RunTask(t)
	}
	for {
		c.mu.Lock()
		todo := c.out.Tasks
		c.out.Tasks = nil
		c.mu.Unlock()
		if len(todo) == 0 {
			return err
		}
		for _, t := range todo {
			c.loop.RunTask(t)
		}
	}
}

func TestBrokenRules(t *testing.T) {
	deep := func(n int, open, shut string) string { return strings.Repeat(open, n) + `1` + strings.Repeat(shut, n) }
	for _, c := range []struct{ message, want string }{
		// No message at all.
		{``, "not JSON"}, {`[`, "not JSON"}, {`nonsense`, "not JSON"}, {`["push",1]]`, "not JSON"}, {"[\"push\",\"\xff\"]", "not JSON"},
		{`1`, "no array"}, {`null`, "no array"}, {`{}`, "no array"}, {`"push"`, "no array"}, {`[]`, "no array"},
		{`[1]`, "unknown message"}, {`["nonsense"]`, "unknown message"}, {`[["push"]]`, "unknown message"}, {`["Push",1]`, "unknown message"},
		{`["` + strings.Repeat("x", 1000) + `"]`, "unknown message"},
		// Counts of elements.
		{`["push"]`, "bad push"}, {`["push",1,2]`, "bad push"}, {`["pull"]`, "bad pull"}, {`["pull",1,2]`, "bad pull"},
		{`["resolve"]`, "bad resolve"}, {`["resolve",1]`, "bad resolve"}, {`["resolve",1,2,3]`, "bad resolve"},
		{`["reject",1]`, "bad reject"}, {`["release",1]`, "bad release"}, {`["release",1,1,1]`, "bad release"},
		{`["abort"]`, "bad abort"}, {`["stream"]`, "bad stream"}, {`["stream",1,2]`, "bad stream"}, {`["pipe",1]`, "bad pipe"},
		// Ids.
		{`["pull",99]`, "no export 99"}, {`["pull",-99]`, "no export -99"}, {`["pull",1.5]`, "bad pull"}, {`["pull","1"]`, "bad pull"},
		{`["pull",null]`, "bad pull"}, {`["pull",1e300]`, "bad pull"}, {`["pull",9007199254740993]`, "bad pull"},
		{`["pull",1e999]`, "bad pull"}, {`["pull",[1]]`, "bad pull"},
		{`["release",99,1]`, "no export 99"}, {`["release",1,2]`, "counts"}, {`["release",1,0]`, "0 counts"}, {`["release",1,-1]`, "-1 counts"},
		{`["release",1,0.5]`, "bad release"}, {`["release",1,1e300]`, "bad release"}, {`["release",1,"1"]`, "bad release"},
		{`["release",0,2]`, "counts"}, {`["release",-1,9007199254740991]`, "counts"},
		{`["resolve","1",1]`, "bad resolve"}, {`["resolve",-1,1]`, "no promise"}, {`["resolve",0,1]`, "no promise"}, {`["reject",-1,1]`, "no promise"},
		{`["push",["export",1]]`, "not the sender's"}, {`["push",["export",0]]`, "not the sender's"}, {`["push",["promise",1]]`, "not the sender's"},
		{`["push",["writable",1]]`, "not the sender's"}, {`["push",["promise",-1]]`, "twice"}, {`["push",["promise",-2]]`, "twice"},
		{`["push",["export",-2]]`, "twice"}, {`["push",["export",-1.5]]`, "bad export"}, {`["push",["export","-1"]]`, "bad export"},
		{`["push",["export"]]`, "bad export"}, {`["push",["export",-1,1]]`, "bad export"}, {`["push",["promise"]]`, "bad promise"},
		{`["push",["import",99]]`, "no export 99"}, {`["push",["pipeline",99]]`, "no export 99"}, {`["push",["import",1.5]]`, "no integer"},
		{`["push",["pipeline"]]`, "bad pipeline"}, {`["push",["pipeline",0,[],[],[]]]`, "bad pipeline"}, {`["push",["pipeline","0"]]`, "no integer"},
		{`["push",["pipeline",0,"a"]]`, "bad path"}, {`["push",["pipeline",0,[{}]]]`, "bad path"}, {`["push",["pipeline",0,[null],[]]]`, "bad path"},
		{`["push",["pipeline",0,["a"],1]]`, "bad pipeline"}, {`["push",["pipeline",0,["a"],{}]]`, "bad pipeline"},
		{`["push",["pipeline",99,["a"],[1]]]`, "no export 99"}, {`["push",["readable",99]]`, "no pipe"}, {`["push",["readable",1]]`, "no pipe"},
		{`["push",["readable","2"]]`, "bad readable"}, {`["push",[[["readable",2],["readable",2]]]]`, "no pipe"},
		// Expressions.
		{`["push",[]]`, "empty"}, {`["push",[1]]`, "no expression"}, {`["push",[1,2]]`, "no expression"}, {`["push",[[1],2]]`, "no expression"},
		{`["push",["nonsense"]]`, "unknown expression"}, {`["push",{"a":["nonsense"]}]`, "unknown expression"}, {`["push",["Date",1]]`, "unknown expression"},
		{`["push",{"toJSON":["nonsense"]}]`, "unknown expression"}, {`["push",["undefined",1]]`, "bad undefined"},
		{`["push",["bigint"]]`, "bad bigint"}, {`["push",["bigint",1]]`, "bad bigint"}, {`["push",["bigint","1x"]]`, "bad bigint"},
		{`["push",["bigint",""]]`, "bad bigint"}, {`["push",["bigint","-"]]`, "bad bigint"}, {`["push",["bigint","0x10"]]`, "bad bigint"},
		{`["push",["bigint","1_0"]]`, "bad bigint"}, {`["push",["bigint","` + strings.Repeat("9", 16385) + `"]]`, "too large"},
		{`["push",["date"]]`, "bad date"}, {`["push",["date","x"]]`, "bad date"}, {`["push",["date",[]]]`, "bad date"},
		{`["push",["bytes"]]`, "bad bytes"}, {`["push",["bytes",1]]`, "bad bytes"}, {`["push",["bytes","!"]]`, "no base64"}, {`["push",["bytes","a"]]`, "no base64"},
		{`["push",["bytes","aGk","Nonsense"]]`, "marker"}, {`["push",["bytes","aGk",1]]`, "unknown kind"}, {`["push",["bytes","aGkh","Int16Array"]]`, "whole number"},
		{`["push",["error"]]`, "bad error"}, {`["push",["error","E"]]`, "bad error"}, {`["push",["error",1,"m"]]`, "bad error"},
		{`["push",["error","E",1]]`, "bad error"}, {`["push",["error","E","m",1]]`, "bad error"}, {`["push",["error","E","m",null,1]]`, "bad error"},
		{`["push",["error","E","m",null,[]]]`, "bad error"}, {`["push",["error","E","m",null,{"a":["nonsense"]}]]`, "unknown expression"},
		{`["push",["url",1]]`, "bad url"}, {`["push",["headers",1]]`, "bad headers"}, {`["push",["headers",[1]]]`, "bad headers"},
		{`["push",["headers",[["a"]]]]`, "bad headers"}, {`["push",["headers",[["a",1]]]]`, "bad headers"},
		{`["push",["request","u"]]`, "bad request"}, {`["push",["request",1,{}]]`, "bad request"}, {`["push",["request","u",null]]`, "bad request"},
		{`["push",["request","u",{"body":1}]]`, "body"}, {`["push",["request","u",{"headers":{}}]]`, "bad headers"},
		{`["push",["request","u",{"method":1}]]`, "bad request"}, {`["push",["request","u",{"signal":1}]]`, "signal"},
		{`["push",["response",1,{}]]`, "body"}, {`["push",["response",null]]`, "bad response"}, {`["push",["response",null,1]]`, "bad response"},
		{`["push",["response",null,{"status":"200"}]]`, "bad response"}, {`["push",["response",null,{"status":99}]]`, "bad response"},
		{`["push",["response",null,{"webSocket":1}]]`, "socket"}, {`["push",["blob","t"]]`, "bad blob"}, {`["push",["blob",1,["readable",2]]]`, "bad blob"},
		{`["push",["blob","t",["bytes","aGk"]]]`, "bad blob"}, {`["push",["blob","t",["readable",1]]]`, "no pipe"},
		{`["push",["remap"]]`, "bad remap"}, {`["push",["remap",1,[],[],1]]`, "bad remap"}, {`["push",["remap",1,[],1,[1]]]`, "bad remap"},
		{`["push",["remap",1,1,[],[1]]]`, "bad path"}, {`["push",["remap",99,[],[],[1]]]`, "no export"}, {`["push",["remap",1,[],[1],[1]]]`, "bad capture"},
		{`["push",["remap",1,[],[["import",99]],[1]]]`, "no export"}, {`["push",["remap",1,[],[["export",1]],[1]]]`, "not the sender's"},
		{`["push",["remap",1,[],[["promise",-9]],[1]]]`, "bad capture"}, {`["push",["remap",1,[],[["import",0,[]]],[1]]]`, "bad capture"},
		// What comes along with something wrong is given back.
		{`["push",[[["export",-7],["export",-8],["promise",-9],["nonsense"]]]]`, "unknown expression"},
		{`["push",["pipeline",0,["echo"],[["export",-7],["pipeline",0,["obj"],[]],["nonsense"]]]]`, "unknown expression"},
		{`["resolve",-2,[[["export",-7],["nonsense"]]]]`, "unknown expression"},
		// Depths.
		{`["push",` + deep(300, `{"a":`, `}`) + `]`, "too deep"}, {`["push",` + deep(270, `[[`, `]]`) + `]`, "too deep"},
		{`["push",` + deep(5000, `[`, `]`) + `]`, "too deep"}, {`["push",["pipeline",0,[` + strings.Repeat(`"a",`, 300) + `"a"]]]`, "too long"},
		{`["push",["pipeline",0,["echo"],[` + deep(270, `{"a":`, `}`) + `]]]`, "too deep"},
	} {
		conn, _ := bare(t, Limits{})
		err := say(conn, c.message)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.100s: %v, want %s", c.message, err, c.want)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("%.100s: an error of %d bytes", c.message, len(err.Error()))
		}
		if err == nil {
			err = expr.Violationf("over")
		}
		conn.loop.End(abortEnding(err))
		conn.failUnanswered()
		if s := conn.Stats(); s.Exports != 0 || s.Imports != 0 {
			t.Errorf("%.100s: %+v is left", c.message, s)
		}
	}
}

// What is odd but allowed does no harm.
func TestOddMessages(t *testing.T) {
	for _, m := range []string{
		` [ "pull" , 1 ] `, `["pull",1]`, `["pull",-1]`, `["pull",0]`, `["pull",1.0]`, `["pull",1e0]`, `["release",1,1]`, `["release",0,1]`,
		`["resolve",77,["export",-7]]`, `["resolve",-77,1]`, `["reject",77,1]`, `["reject",-2,null]`, `["reject",-2,["export",-5]]`,
		`["push",["inf",1]]`, `["push",["date",1e300]]`, `["push",["date",null]]`, `["push",{"__proto__":["export",-5]}]`,
		`["push",["pipeline",0,["__proto__"],[]]]`, `["push",["pipeline",0,[-1]]]`, `["push",["pipeline",0,[1e300],[1]]]`, `["push",["pipeline",3]]`,
		`["push",["import",3,["a","b"],[]]]`, `["push",["bytes","aGk="]]`, `["push",["bytes","aGk"]]`, `["push",["bytes",""]]`,
		`["push",["error","Weird","m","stack"]]`, `["push",["request","not a url",{"method":"X"}]]`, `["push",["url",""]]`,
		`["push",["remap",1,[],[],[]]]`, `["push",["remap",1,[],[],[["nonsense"]]]]`, `["push",["remap",1,[],[["import",-1]],[["pipeline",-5]]]]`,
		`["stream",["pipeline",2,["write"],[]]]`, `["stream",["pipeline",2,["nonsense"],[]]]`, `["stream",["pipeline",2,["close","x"],[]]]`,
		`["push",["pipeline",2,["close"]]]`, `["push",["blob","",["readable",2]]]`,
	} {
		conn, _ := bare(t, Limits{})
		if err := say(conn, m); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		if err := say(conn, `["push",["pipeline",0,["echo"],["still there"]]]`); err != nil {
			t.Errorf("after %s: %v", m, err)
		}
		conn.Close("over")
		conn.failUnanswered()
		if s := conn.Stats(); s.Exports != 0 || s.Imports != 0 {
			t.Errorf("%s: %+v is left", m, s)
		}
	}
}

// Every limit that a message can meet is met where it says, and counted.
func TestLimitsAreCounted(t *testing.T) {
	many := func(n int, m string) (all []string) {
		for range n {
			all = append(all, m)
		}
		return all
	}
	var exports []string
	for i := range 12 {
		exports = append(exports, fmt.Sprintf(`["push",["export",%d]]`, -10-i))
	}
	blob := []string{`["pipe"]`, `["push",["blob","",["readable",6]]]`, `["stream",["pipeline",6,["write"],[["bytes","aGVsbG8"]]]]`}
	var pulls []string // of results that nobody reads: it is the end
	for i := range 5 {
		pulls = append(pulls, `["push","a text of thirty characters or so"]`, fmt.Sprintf(`["pull",%d]`, 6+i))
	}
	stream := many(3, `["stream",["pipeline",2,["write"],["12345678901234567890"]]]`)
	for _, c := range []struct {
		limit    Limit
		lim      Limits
		messages []string
		abort    bool
	}{
		{LimitMessageBytes, Limits{MessageBytes: 100}, []string{`["push","` + strings.Repeat("x", 100) + `"]`}, true},
		{LimitDepth, Limits{Depth: 5}, []string{`["push",{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}]`}, true},
		{LimitBigIntDigits, Limits{BigIntDigits: 5}, []string{`["push",["bigint","123456"]]`}, true},
		{LimitCalls, Limits{Calls: 4}, many(4, `["push",["pipeline",0,["hold"],[1]]]`), false},
		{LimitCalls, Limits{Calls: 4}, many(8, `["push",["pipeline",0,["hold"],[1]]]`), true},
		{LimitCallBytes, Limits{CallBytes: 2000}, many(3, `["push",["pipeline",0,["echo"],["`+strings.Repeat("x", 1500)+`"]]]`), false},
		{LimitExports, Limits{Exports: 10}, append(many(6, `["push",["pipeline",0,["obj"],[]]]`), `["pull",11]`), false},
		{LimitExports, Limits{Exports: 10}, many(20, `["push",1]`), true},
		{LimitImports, Limits{Imports: 10}, exports, true},
		{LimitMapSteps, Limits{MapSteps: 10}, []string{`["push",["remap",1,[],[],[[[1,2,3,4,5,6,7]]]]]`}, false},
		{LimitBlobBytes, Limits{BlobBytes: 4}, blob, false},
		{LimitStreamBytes, Limits{StreamBytes: 60}, stream, false},
		{LimitQueuedBytes, Limits{QueuedBytes: 20}, many(2, `["push",["pipeline",0,["echo"],[1]]]`), false},
		{LimitQueuedBytes, Limits{QueuedBytes: 20}, pulls, false},
	} {
		conn, hits := bare(t, c.lim)
		var err error
		for _, m := range c.messages {
			if err = say(conn, m); err != nil || conn.isDone() {
				break
			}
		}
		if (err != nil) != c.abort || hits.Of(c.limit) == 0 {
			t.Errorf("%v: %v, %d hits", c.limit, err, hits.Of(c.limit))
		}
		if len(c.messages) == 10 && !conn.isDone() {
			t.Error("who reads nothing goes on")
		}
		conn.Close("over")
		conn.failUnanswered()
	}
}

// A few messages make a value that nobody could hold: it is not made.
func TestAmplification(t *testing.T) {
	conn, _ := bare(t, Limits{CallBytes: 1 << 20})
	for i, m := range []string{
		`["push",[["lol","lol","lol","lol","lol","lol","lol","lol","lol","lol"]]]`, // 6
	} {
		if err := say(conn, m); err != nil {
			t.Fatal(i, err)
		}
	}
	for id := 6; id < 20; id++ {
		p := fmt.Sprintf(`["pipeline",%d]`, id)
		if err := say(conn, `["push",["pipeline",0,["echo"],[[[`+strings.Repeat(p+",", 9)+p+`]]]]]`); err != nil {
			t.Fatal(err)
		}
		if err := say(conn, fmt.Sprintf(`["pull",%d]`, id+1)); err != nil {
			t.Fatal(err)
		}
	}
	conn.mu.Lock()
	said := string(conn.out.Bytes)
	if conn.callBytes > 1<<20 {
		t.Errorf("%d bytes are held", conn.callBytes)
	}
	conn.mu.Unlock()
	if !strings.Contains(said, "results hold too much") {
		t.Errorf("nothing was too much: %.1000s", said[max(0, len(said)-1000):])
	}
	conn.Close("over")
	conn.failUnanswered()
}
