// Transcripts: what the core says to what, as text that a person can read. testdata/*.txt has them. A line is
//
//	# a comment
//	> a message of the peer
//	! an action of this side
//	< a message that it has led to
//	. something that happened: a call, an answer, a release
//	= what the tables hold
//
// go test -run TestTranscripts -update writes the lines that follow from the others.

package capnweb

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

var update = flag.Bool("update", false, "write the transcripts' answers")

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = runTranscript(t, string(text)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, have := strings.Split(string(text), "\n"), strings.Split(got, "\n")
			for i := range max(len(want), len(have)) {
				w, h := lineAt(want, i), lineAt(have, i)
				if w != h {
					t.Fatalf("line %d:\n got %s\nwant %s", i+1, h, w)
				}
			}
		})
	}
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// story is a connection under test and what the actions have named.
type story struct {
	over   []string   // contexts that have ended
	saying sync.Mutex // guards lines
	t      *testing.T
	c      *Conn
	lim    Limits
	lines  []string
	calls  map[string]*Call
	names  map[string]any
	made   int
	begun  bool
}

// runTranscript gives the text as it should be.
func runTranscript(t *testing.T, text string) string {
	s := &story{t: t, calls: map[string]*Call{}, names: map[string]any{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "< "), strings.HasPrefix(line, ". "), strings.HasPrefix(line, "= "):
			continue
		case strings.HasPrefix(line, "> "):
			s.lines = append(s.lines, line)
			s.begin()
			s.receive(line[2:])
		case strings.HasPrefix(line, "! "):
			s.lines = append(s.lines, line)
			s.act(line[2:])
		default:
			s.lines = append(s.lines, line)
			continue
		}
		s.finish()
	}
	s.begin()
	s.c.Close("the transcript is over")
	s.drain()
	for range 3 {
		synctest.Wait()
		s.drain()
	}
	if st := s.c.Stats(); st.Exports != 0 || st.Imports != 0 {
		t.Errorf("after the end the tables hold %+v", st)
	}
	return incidents.ReplaceAllString(strings.Join(s.lines, "\n")+"\n", "incident ID")
}

// incidents are the names of panics, another each time.
var incidents = regexp.MustCompile(`\bincident [A-Z2-7]{12}\b`)

func (s *story) begin() {
	if s.begun {
		return
	}
	s.begun = true
	a, _ := Pipe()
	s.c = NewConn(a, Config{Main: &actor{s: s, name: "main"}, Limits: s.lim, Logger: slog.New(slog.DiscardHandler)})
}

func (s *story) say(format string, args ...any) {
	s.saying.Lock() // contexts end on goroutines of their own
	defer s.saying.Unlock()
	s.lines = append(s.lines, ". "+fmt.Sprintf(format, args...))
}

// receive does what a reader does.
func (s *story) receive(msg string) {
	if s.c.isDone() {
		s.say("it is over")
		return
	}
	var b []peerconn.Task
	err := s.c.handleMessage([]byte(msg), via{c: s.c, tasks: &b})
	if err != nil {
		s.c.loop.End(abortEnding(err))
	}
	for _, t := range b {
		s.c.loop.RunTask(t)
	}
	s.drain()
}

// drain does what is to be delivered.
func (s *story) drain() {
	for {
		s.c.mu.Lock()
		todo := s.c.out.Tasks
		s.c.out.Tasks = nil
		s.c.mu.Unlock()
		if len(todo) == 0 {
			return
		}
		for _, t := range todo {
			s.c.loop.RunTask(t)
		}
	}
}

// finish notes what an input has led to.
func (s *story) finish() {
	if s.c == nil {
		return
	}
	synctest.Wait()
	s.drain()
	synctest.Wait()
	sort.Strings(s.over)
	s.lines = append(s.lines, s.over...)
	s.over = nil
	s.c.mu.Lock()
	from := 0
	for _, end := range s.c.out.Ends {
		s.lines = append(s.lines, "< "+string(s.c.out.Bytes[from:end]))
		from = end
	}
	s.c.out.TakeMessages()
	s.c.out.Urgent = false
	s.c.out.WakeWaiters()
	s.c.mu.Unlock()
}

func (s *story) act(line string) {
	if strings.HasPrefix(line, "limits ") {
		for _, f := range strings.Fields(line)[1:] {
			name, value, _ := strings.Cut(f, "=")
			var n int
			fmt.Sscan(value, &n)
			switch name {
			case "calls":
				s.lim.Calls = n
			case "exports":
				s.lim.Exports = n
			case "imports":
				s.lim.Imports = n
			case "depth":
				s.lim.Depth = n
			case "mapsteps":
				s.lim.MapSteps = n
			case "blob":
				s.lim.BlobBytes = n
			case "stream":
				s.lim.StreamBytes = n
			case "message":
				s.lim.MessageBytes = n
			case "digits":
				s.lim.BigIntDigits = n
			case "callbytes":
				s.lim.CallBytes = n
			default:
				s.t.Fatalf("no limit %s", name)
			}
		}
		return
	}
	s.begin()
	name := ""
	if left, right, ok := strings.Cut(line, " = "); ok {
		name, line = left, right
	}
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "call": // call WHAT METHOD ARGS
		f := strings.SplitN(rest, " ", 3)
		method := f[1]
		if method == "()" {
			method = ""
		}
		var args []any
		if len(f) > 2 {
			args = s.value(f[2]).([]any)
		}
		switch w := s.named(f[0]).(type) {
		case *Stub:
			s.names[name] = w.Call(context.Background(), method, args...)
		case *Promise:
			s.names[name] = w.Call(context.Background(), method, args...)
		}
	case "get":
		f := strings.Fields(rest)
		switch w := s.named(f[0]).(type) {
		case *Stub:
			s.names[name] = w.Get(f[1:]...)
		case *Promise:
			s.names[name] = w.Get(f[1:]...)
		}
	case "stub":
		s.names[name] = s.named(rest).(*Promise).Stub()
	case "dup":
		s.names[name] = s.named(rest).(*Stub).Dup()
	case "object":
		s.names[name] = NewStub(&actor{s: s, name: name})
	case "await":
		p := s.named(rest).(*Promise)
		p.Then(func(v any, err error) {
			if err != nil {
				s.say("%s failed: %v", rest, err)
				return
			}
			s.say("%s is %s", rest, s.show(v))
			if st, ok := v.(*Stub); ok {
				s.names[rest+"'"] = st
			}
		})
	case "release":
		switch w := s.named(rest).(type) {
		case *Stub:
			w.Release()
		case *Promise:
			w.Release()
		}
	case "broken":
		s.named(rest).(*Stub).OnBroken(func(err error) { s.say("%s is broken: %v", rest, err) })
	case "return":
		f := strings.SplitN(rest, " ", 2)
		s.calls[f[0]].Return(s.value(f[1]))
	case "fail":
		f := strings.SplitN(rest, " ", 2)
		if err, ok := s.value(f[1]).(error); ok {
			s.calls[f[0]].Fail(err)
		} else {
			s.calls[f[0]].Fail(errors.New(f[1]))
		}
	case "resolve":
		f := strings.SplitN(rest, " ", 2)
		s.named(f[0]+".resolve").(func(any, error))(s.value(f[1]), nil)
	case "promise":
		p, resolve := NewPromise()
		s.names[name], s.names[name+".resolve"] = p, resolve
	case "read":
		r := s.named(rest).(*Readable)
		go func() {
			v, err := r.Read(context.Background())
			s.say("%s gave %s, %v", rest, s.show(v), err)
		}()
	case "cancel":
		s.named(rest).(*Readable).Cancel(nil)
	case "stream":
		r, w := NewReadable()
		s.names[name], s.names[name+".w"] = r, w
	case "sink":
		s.names[name] = NewWritable(func(_ context.Context, v any) error {
			s.say("%s took %s", name, s.show(v))
			return nil
		}, func(err error) { s.say("%s ended: %v", name, err) })
	case "write":
		f := strings.SplitN(rest, " ", 2)
		w, v := s.named(f[0]).(*Writable), s.value(f[1])
		go func() { s.say("write: %v", w.Write(context.Background(), v)) }()
	case "end":
		w := s.named(rest).(*Writable)
		go func() { s.say("end: %v", w.Close(context.Background())) }()
	case "cut":
		s.named(rest).(*Writable).Abort(&Error{Message: "cut"})
	case "map": // map WHAT METHOD: calls a method of main's with each element
		f := strings.Fields(rest)
		main := s.named("main").(*Stub)
		program := func(in *Promise) any { return main.Call(context.Background(), f[1], in) }
		switch w := s.named(f[0]).(type) {
		case *Stub:
			s.names[name] = w.Map(program)
		case *Promise:
			s.names[name] = w.Map(program)
		}
	case "close":
		s.c.Close(rest)
	case "abort":
		s.c.Abort(errors.New(rest))
	case "tables":
		st := s.c.Stats()
		if st.Exports == 0 && st.Calls == 0 && s.c.callBytes != 0 {
			s.t.Errorf("nothing is held, but %d bytes are charged", s.c.callBytes)
		}
		s.lines = append(s.lines, fmt.Sprintf("= exports %d imports %d calls %d", st.Exports, st.Imports, st.Calls))
	default:
		s.t.Fatalf("no action %s", verb)
	}
}

func (s *story) named(name string) any {
	if name == "main" {
		if s.names[name] == nil {
			m := s.c.Main()
			s.names[name] = m
		}
	}
	v, ok := s.names[name]
	if !ok {
		s.t.Fatalf("nothing is named %s", name)
	}
	return v
}

// value reads JSON in which "$name" is something named, and {"$type": …} something that JSON lacks.
func (s *story) value(text string) any {
	v, err := jsontext.Parse([]byte(text), maxDepth)
	if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return s.fill(v)
}

func (s *story) fill(v any) any {
	switch v := v.(type) {
	case string:
		if rest, ok := strings.CutPrefix(v, "$"); ok {
			return s.named(rest)
		}
	case []any:
		for i := range v {
			v[i] = s.fill(v[i])
		}
	case map[string]any:
		for k, x := range v {
			switch k {
			case "$undefined":
				return Undefined{}
			case "$date":
				if x == nil {
					return time.Time{}
				}
				return time.UnixMilli(int64(x.(float64)))
			case "$inf", "$-inf", "$nan":
				var f float64
				fmt.Sscan(k[1:], &f)
				return f
			case "$bigint":
				n, _ := new(big.Int).SetString(x.(string), 10)
				return n
			case "$bytes":
				return []byte(x.(string))
			case "$container":
				l := x.([]any)
				return Bytes{l[0].(string), []byte(l[1].(string))}
			case "$url":
				return URL(x.(string))
			case "$headers":
				return Headers{{"a", "b"}}
			case "$error":
				l := x.([]any)
				e := &Error{Name: l[0].(string), Message: l[1].(string), Stack: "secret"}
				if len(l) > 2 {
					e.Props = s.fill(l[2]).(map[string]any)
				}
				return e
			case "$blob":
				return &Blob{"text/plain", []byte(x.(string))}
			case "$request":
				return &Request{URL: x.(string), Method: "POST", Headers: Headers{{"a", "b"}}, Body: "text"}
			case "$response":
				return &Response{Status: 404, StatusText: x.(string), Body: []byte("no")}
			case "$object":
				return &actor{s: s, name: x.(string)}
			case "$chan":
				return make(chan int)
			}
			v[k] = s.fill(x)
		}
	}
	return v
}

// show writes a value for people.
func (s *story) show(v any) string {
	switch v := v.(type) {
	case *Stub:
		if a, ok := v.Object().(*actor); ok {
			return "object " + a.name
		}
		return "stub"
	case *Readable:
		return "readable"
	case *Writable:
		return "writable"
	case []any:
		var l []string
		for _, e := range v {
			l = append(l, s.show(e))
		}
		return "[" + strings.Join(l, " ") + "]"
	case map[string]any:
		var l []string
		for k, e := range v {
			l = append(l, k+":"+s.show(e))
		}
		sort.Strings(l)
		return "{" + strings.Join(l, " ") + "}"
	case string:
		return fmt.Sprintf("%q", v)
	case []byte:
		return fmt.Sprintf("bytes %q", v)
	case Bytes:
		return fmt.Sprintf("%s %q", v.Container, v.Data)
	case *big.Int:
		return v.String() + "n"
	case time.Time:
		if v.IsZero() {
			return "no date"
		}
		return "date " + fmt.Sprint(v.UnixMilli())
	case Undefined:
		return "undefined"
	case nil:
		return "null"
	case *Error:
		return fmt.Sprintf("error %v %s", v, s.show(v.Props))
	case *Blob:
		return fmt.Sprintf("blob %s %q", v.Type, v.Data)
	case *Request:
		return fmt.Sprintf("request %s %s %v %s %s", v.Method, v.URL, v.Headers, s.show(v.Body), s.show(v.Init))
	case *Response:
		return fmt.Sprintf("response %d %s %v %s %s", v.Status, v.StatusText, v.Headers, s.show(v.Body), s.show(v.Init))
	}
	return fmt.Sprint(v)
}

// actor is an object whose calls are noted.
type actor struct {
	s    *story
	name string
}

func (a *actor) Release() { a.s.say("%s is released", a.name) }

func (a *actor) Get(name string) (any, bool) {
	switch name {
	case "value":
		return 42, true
	case "list":
		return []any{1, 2, 3}, true
	case "tree":
		return map[string]any{"a": map[string]any{"b": []any{"c"}}}, true
	case "child":
		return &actor{s: a.s, name: a.name + ".child"}, true
	}
	return nil, false
}

func (a *actor) Serve(c *Call) {
	s := a.s
	var args []string
	for _, v := range c.Args() {
		args = append(args, s.show(v))
	}
	s.say("%s.%s(%s)", a.name, strings.Join(c.Path(), "."), strings.Join(args, ", "))
	arg := func(i int) any {
		if i < len(c.Args()) {
			return c.Args()[i]
		}
		return Undefined{}
	}
	switch c.Method() {
	case "echo":
		c.Return(arg(0))
	case "nothing":
		c.Return(Undefined{})
	case "make":
		s.made++
		c.Return(&actor{s: s, name: fmt.Sprintf("made%d", s.made)})
	case "twice":
		s.made++
		o := &actor{s: s, name: fmt.Sprintf("made%d", s.made)}
		c.Return([]any{o, o})
	case "keep": // answered by the actions return and fail
		name, _ := arg(0).(string)
		s.calls[name] = c
		context.AfterFunc(c.Context(), func() { // on a goroutine of its own: it is told after the rest
			s.saying.Lock()
			defer s.saying.Unlock()
			s.over = append(s.over, ". "+name+" is over")
		})
	case "hold": // dups what it gets
		name, _ := arg(0).(string)
		switch v := arg(1).(type) {
		case *Stub:
			s.names[name] = v.Dup()
		case *Readable:
			v.Keep()
			s.names[name] = v
		case *Writable:
			v.Keep()
			s.names[name] = v
		}
		c.Return(nil)
	case "apply":
		p := arg(0).(*Stub).Call(context.Background(), "", c.Args()[1:]...)
		c.Return(p)
	case "give":
		c.Return(s.names[arg(0).(string)])
	case "fail":
		c.Fail(&Error{Name: "RangeError", Message: fmt.Sprint(arg(0)), Stack: "secret stack", Props: map[string]any{"code": 7}})
	case "secret":
		c.Fail(errors.New("secret"))
	case "panic":
		panic("secret")
	case "unsendable":
		c.Return(make(chan int))
	default:
		c.Fail(notAFunction(c.Path()))
	}
}
