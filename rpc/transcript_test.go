// Transcripts: the core driven by text. Each step of a file in testdata is a command, a line of dashes and what the vat
// says to it, up to an empty line; "go test -run Transcripts -update" writes what it says now. The language:
//
//	in MESSAGE ...          a message of the peer (see parseMessage)
//	boot x                  x is the peer's bootstrap interface
//	new x                   x is a new object of ours
//	promise x               x is a promise of ours; "resolve x y" and "break x TYPE REASON" resolve it
//	call p = x.METHOD ...   p is the answer to a call with n=NUMBER text=TEXT cap=REF
//	cap x = p.1.0           x is the capability at a path of p's result
//	release x               lets go of a reference or a promise; drop x is the same
//	wait p                  says what p is
//	return N ... , fail N TYPE REASON    answers the held call with number N
//	take x = N              x is the capability in the parameters of the held call
//	pause, resume           stops and goes on delivering
//	unread                  from here on nothing is written to the peer
//	drain                   from here on nothing new of the peer is served
//	limit NAME=N ...        sets limits, first in a file
//	stats                   sizes of the tables
package rpc

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

var update = flag.Bool("update", false, "rewrite the transcripts")

func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runTranscript(t, file)
		})
	}
}

func runTranscript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var s *story
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "== "): // a new story, with a new vat
			s.end(t)
			s = newStory(t)
			out.WriteString(line + "\n")
			continue
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
			continue
		}
		if s == nil {
			t.Fatalf("%s:%d: a story begins with ==", file, i+1)
		}
		out.WriteString(line + "\n")
		at := i + 1
		var want []string
		if i+1 < len(lines) && lines[i+1] == "----" {
			for i += 2; i < len(lines) && strings.TrimSpace(lines[i]) != ""; i++ {
				want = append(want, lines[i])
			}
			i--
		}
		got := s.step(line)
		for i := range got {
			got[i] = incidents.ReplaceAllString(got[i], "incident ID")
		}
		if len(got) > 0 {
			out.WriteString("----\n" + strings.Join(got, "\n") + "\n")
		}
		if !*update && strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:%d: %s\ngot:\n\t%s\nwant:\n\t%s", file, at, line, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
	s.end(t)
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// story is one vat and what a transcript has named.
type story struct {
	t        *testing.T
	conn     *Conn
	said     []string
	refs     map[string]*Ref
	promises map[string]*Promise
	resolves map[string]func(*Ref, error)
	objects  map[string]*storyObject
	held     map[uint64]*Call
	paused   bool
	unread   bool
	boot     *storyObject
	lim      Limits
	log      bytes.Buffer
	children int
}

// quiet is a transport that carries nothing.
type quiet struct{ Transport }

func (quiet) RemoteAddr() string      { return "story" }
func (quiet) Close(int, string) error { return nil }

func newStory(t *testing.T) *story {
	s := &story{
		t: t, refs: map[string]*Ref{}, promises: map[string]*Promise{}, resolves: map[string]func(*Ref, error){},
		objects: map[string]*storyObject{}, held: map[uint64]*Call{},
	}
	s.boot = &storyObject{story: s, name: "boot"}
	return s
}

// vat makes the connection when the first command needs it, so that limits can be set before.
func (s *story) vat() *Conn {
	if s.conn == nil {
		log := slog.New(slog.NewTextHandler(&s.log, nil))
		s.conn = NewConn(quiet{}, Config{Bootstrap: s.boot, Limits: s.lim, Logger: log, Trace: func(dir string, m rpccp.Message) {
			if dir == "out" {
				s.say("out " + formatMessage(m))
				checkWords(s.t, formatMessage(m))
			}
		}})
		s.conn.loop.Manual = true
	}
	return s.conn
}

func (s *story) say(line string) { s.said = append(s.said, line) }

// end ends the connection and checks that nothing is left.
func (s *story) end(t *testing.T) {
	if s == nil || s.conn == nil {
		return
	}
	for name := range s.refs {
		s.refs[name].Release()
	}
	for name := range s.promises {
		s.promises[name].Release()
	}
	for _, call := range s.held {
		call.Fail(errCanceled)
	}
	s.conn.Close("end of story")
	s.conn.failOrphans()
	s.paused = false
	s.deliver()
	for name, o := range s.objects {
		if !o.gone {
			t.Errorf("%s: object %s is not released", t.Name(), name)
		}
	}
	if !s.boot.gone {
		t.Errorf("%s: the bootstrap object is not released", t.Name())
	}
	checkLog(t, s.log.String(), s.conn.Err() != nil)
	if st := s.conn.Stats(); st.Questions+st.Answers+st.Exports+st.Imports+st.Embargoes+st.QueuedCalls != 0 {
		t.Errorf("%s: tables are not empty: %+v", t.Name(), st)
	}
}

// deliver runs what is due on the delivery goroutine.
func (s *story) deliver() {
	c := s.conn
	if s.paused || c == nil {
		return
	}
	c.loop.Deliver()
}

// step carries out one command and gives what was said.
func (s *story) step(line string) []string {
	s.said = nil
	defer func() { s.said = nil }()
	if err := s.command(line); err != nil {
		s.say("error: " + err.Error())
	}
	s.deliver()
	if c := s.conn; c != nil && !s.unread {
		c.mu.Lock()
		c.out.TakeMessages()
		c.mu.Unlock()
	}
	return s.said
}

func (s *story) command(line string) error {
	words, err := splitWords(line)
	if err != nil {
		return err
	}
	a := parseArgs(words[1:])
	switch words[0] {
	case "limit":
		for _, w := range words[1:] {
			if err := s.setLimit(w); err != nil {
				return err
			}
		}
	case "in":
		frame, err := buildMessage(a)
		if err != nil {
			return err
		}
		c := s.vat()
		c.mu.Lock()
		was := c.ended != nil
		if !was {
			if err := c.handle(frame); err != nil {
				c.loop.EndLocked(abortEnding(err))
			}
		}
		now := c.ended
		c.unlockAndRun()
		if !was && now != nil {
			s.say("ended: " + now.Reason)
		}
	case "boot":
		s.refs[words[1]] = s.vat().Bootstrap(context.Background())
	case "new":
		o := &storyObject{story: s, name: words[1]}
		s.objects[o.name] = o
		s.refs[o.name] = NewLocal(o)
	case "promise":
		s.refs[words[1]], s.resolves[words[1]] = NewPromise()
	case "resolve":
		s.resolves[words[1]](s.refs[words[2]], nil)
	case "break":
		s.resolves[words[1]](nil, exceptionOf(words[2:]))
	case "call":
		name, method, _ := strings.Cut(words[3], ".")
		id, ok := storyMethods[method]
		if !ok {
			return fmt.Errorf("method %s?", method)
		}
		s.vat()
		s.promises[words[1]] = s.refs[name].Call(context.Background(), Method{testInterface, id, method}, testSize,
			fill(a.num("n"), a.get("text"), s.refs[a.get("cap")]))
	case "cap":
		name, path, err := parsePath(words[3])
		if err != nil {
			return err
		}
		s.refs[words[1]] = s.promises[name].Cap(path...)
	case "release", "drop":
		if r, ok := s.refs[words[1]]; ok {
			delete(s.refs, words[1])
			r.Release()
		} else if p, ok := s.promises[words[1]]; ok {
			delete(s.promises, words[1])
			p.Release()
		} else {
			return fmt.Errorf("%s?", words[1])
		}
	case "wait":
		s.sayPromise(words[1])
	case "return":
		call := s.takeHeld(words[1])
		if call == nil {
			return fmt.Errorf("call %s is not held", words[1])
		}
		call.Return(testSize, fill(a.num("n"), a.get("text"), s.refs[a.get("cap")]))
	case "take":
		n, _ := strconv.ParseUint(words[3], 0, 64)
		p, caps := s.held[n].Params()
		ptr, err := p.Ptr(1)
		if err != nil {
			return err
		}
		s.refs[words[1]] = caps.Get(ptr)
	case "fail":
		call := s.takeHeld(words[1])
		if call == nil {
			return fmt.Errorf("call %s is not held", words[1])
		}
		call.Fail(exceptionOf(words[2:]))
	case "context":
		n, _ := strconv.ParseUint(words[1], 0, 64)
		s.say(fmt.Sprintf("context: %v", s.held[n].Context().Err()))
	case "pause":
		s.paused = true
	case "unread":
		s.unread = true
	case "resume":
		s.paused = false
	case "drain":
		c := s.vat()
		c.mu.Lock()
		c.draining = true
		c.unlockAndRun()
	case "close":
		s.vat().Close("closed")
	case "stats":
		st := s.vat().Stats()
		s.say(fmt.Sprintf("questions %d, answers %d, exports %d, imports %d, embargoes %d, queued %d",
			st.Questions, st.Answers, st.Exports, st.Imports, st.Embargoes, st.QueuedCalls))
	default:
		return fmt.Errorf("command %s?", words[0])
	}
	return nil
}

func (s *story) takeHeld(number string) *Call {
	n, _ := strconv.ParseUint(number, 0, 64)
	call := s.held[n]
	delete(s.held, n)
	return call
}

func (s *story) sayPromise(name string) {
	p := s.promises[name]
	select {
	case <-p.Done():
	default:
		s.say(name + ": not answered")
		return
	}
	res, caps, err := p.Wait(context.Background())
	if err != nil {
		s.say(name + ": " + err.Error())
		return
	}
	line := fmt.Sprintf("%s: n=%d text=%q", name, res.Uint64(0), textOf(res, 0))
	if ptr, err := res.Ptr(1); err == nil && ptr.IsValid() {
		r := caps.Get(ptr)
		what := "remote"
		if o, ok := r.Object().(*storyObject); ok {
			what = o.name
		}
		r.Release()
		line += " cap=" + what
	}
	s.say(line)
}

func (s *story) setLimit(word string) error {
	name, value, _ := strings.Cut(word, "=")
	n, err := strconv.Atoi(value)
	if err != nil {
		return err
	}
	fields := map[string]*int{
		"MessageBytes": &s.lim.MessageBytes, "Segments": &s.lim.Segments, "Nesting": &s.lim.Nesting,
		"Traversal": &s.lim.Traversal, "Questions": &s.lim.Questions, "Answers": &s.lim.Answers,
		"AnswerBytes": &s.lim.AnswerBytes, "Exports": &s.lim.Exports, "Imports": &s.lim.Imports,
		"QueuedCalls": &s.lim.QueuedCalls, "QueuedBytes": &s.lim.QueuedBytes,
	}
	f, ok := fields[name]
	if !ok {
		return fmt.Errorf("limit %s?", name)
	}
	*f = n
	return nil
}

// storyObject says what it is called and holds what it is told to hold.
type storyObject struct {
	story *story
	name  string
	kept  *Ref
	gone  bool
}

var storyMethods = map[string]uint16{"echo": 0, "make": 1, "hold": 2, "fail": 3, "panic": 4, "call": 5, "keep": 6, "kept": 7, "callkept": 8}

func (o *storyObject) Release() {
	o.gone = true
	o.kept.Release()
	o.story.say("released " + o.name)
}

func (o *storyObject) Serve(call *Call) {
	s := o.story
	p, caps := call.Params()
	number, text := p.Uint64(0), textOf(p, 0)
	name := fmt.Sprintf("method %d", call.Method().ID)
	for m, id := range storyMethods {
		if id == call.Method().ID {
			name = m
		}
	}
	line := fmt.Sprintf("serve %s.%s n=%d", o.name, name, number)
	if text != "" {
		line += fmt.Sprintf(" text=%q", text)
	}
	ptr, err := p.Ptr(1)
	if err != nil {
		s.say(line)
		call.Fail(Failedf("%v", err))
		return
	}
	r := caps.Get(ptr)
	defer r.Release()
	if r != nil {
		line += " cap=" + what(r)
	}
	s.say(line)
	switch name {
	case "echo":
		call.Return(testSize, fill(number, text, r))
	case "make":
		s.children++
		child := &storyObject{story: s, name: fmt.Sprintf("child%d", s.children)}
		s.objects[child.name] = child
		c := NewLocal(child)
		call.Return(testSize, fill(number, child.name, c))
		c.Release()
	case "hold":
		s.held[number] = call
	case "fail":
		call.Fail(&Exception{Type: ExceptionType(number), Reason: text})
	case "panic":
		panic("as the story asked")
	case "call", "callkept":
		if name == "callkept" {
			r = o.kept.AddRef()
			defer r.Release()
		}
		back := r.Call(context.Background(), Method{testInterface, 0, "echo"}, testSize, fill(number, text, nil))
		back.Notify(func() {
			_, _, err := back.Wait(context.Background())
			back.Release()
			if err != nil {
				call.Fail(err)
				return
			}
			call.Return(testSize, fill(number, text, nil))
		})
	case "keep":
		o.kept.Release()
		o.kept = r.AddRef()
		call.Return(testSize, nil)
	case "kept":
		call.Return(testSize, fill(number, text, o.kept))
	default:
		call.Fail(Unimplementedf("method %d", call.Method().ID))
	}
}

// what names the thing behind a reference.
func what(r *Ref) string {
	if o, ok := r.Object().(*storyObject); ok {
		return o.name
	}
	switch n := r.node.(type) {
	case *remoteCap:
		if n.p != nil {
			return "pipeline"
		}
		return fmt.Sprintf("import:%d", n.id)
	case *promiseCap:
		return "promise"
	case *brokenCap:
		return "broken(" + n.err.Reason + ")"
	}
	return "?"
}

// incidents are the names of panics, another each time.
var incidents = regexp.MustCompile(`\bincident [A-Z2-7]{12}\b`)

func exceptionOf(words []string) *Exception {
	ex := &Exception{Reason: strings.Join(words[1:], " ")}
	for t := Failed; t <= Unimplemented; t++ {
		if t.String() == words[0] {
			ex.Type = t
		}
	}
	return ex
}

// splitWords splits at spaces outside of double quotes.
func splitWords(line string) ([]string, error) {
	var words []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		end, quoted := 0, false
		for end < len(line) && (quoted || line[end] != ' ') {
			if line[end] == '"' {
				quoted = !quoted
			}
			end++
		}
		if quoted {
			return nil, fmt.Errorf("unbalanced quotes")
		}
		words = append(words, strings.ReplaceAll(line[:end], `"`, ""))
		line = line[end:]
	}
	return words, nil
}

// args are a command's words: bare ones in order, and name=value.
type args struct {
	bare  []string
	named map[string]string
}

func parseArgs(words []string) args {
	a := args{named: map[string]string{}}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok && k != "" {
			a.named[k] = v
		} else {
			a.bare = append(a.bare, w)
		}
	}
	return a
}

func (a args) get(k string) string { return a.named[k] }

func (a args) num(k string) uint64 {
	n, _ := strconv.ParseUint(a.named[k], 0, 64)
	return n
}

func (a args) has(word string) bool {
	for _, w := range a.bare {
		if w == word {
			return true
		}
	}
	return false
}

// parsePath reads NAME.1.0.
func parsePath(s string) (name string, path []uint16, err error) {
	parts := strings.Split(s, ".")
	for _, p := range parts[1:] {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return "", nil, err
		}
		path = append(path, uint16(n))
	}
	return parts[0], path, nil
}
