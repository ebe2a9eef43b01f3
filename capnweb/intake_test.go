package capnweb

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// strangerRig is a connection that takes its peer for a stranger. The peer is what the test writes and reads.
type strangerRig struct {
	t                testing.TB
	peer             Transport
	c                *Conn
	in               *intake.Peer
	strangers, known *membudget.Budget
	calls            chan *Call // of the main object: what it was called is answered by the test
}

func newStrangerRig(t testing.TB, message int, patience time.Duration) *strangerRig {
	s := &strangerRig{t: t, calls: make(chan *Call, 100),
		strangers: membudget.New(membudget.Config{Total: 4 << 20}), known: membudget.New(membudget.Config{Total: 64 << 20})}
	cfg := &intake.Config{Strangers: s.strangers, Known: s.known, MaxStrangerBytes: message, MaxWait: patience,
		TooLarge: errOverloaded("too large"), Overloaded: errOverloaded("no memory")}
	s.in = cfg.Open("address")
	var mine Transport
	mine, s.peer = Pipe()
	s.c = NewConn(mine, Config{Main: NewMethods(map[string]any{"show": func(c *Call) { s.calls <- c }}), Intake: s.in})
	ran := make(chan error, 1)
	go func() { ran <- s.c.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = s.peer.Close(peerconn.CloseNormal, "")
		<-ran
		s.in.Close()
		if n := s.strangers.Stats().Held + s.known.Stats().Held; n != 0 {
			t.Errorf("%d bytes are held for nobody", n)
		}
	})
	return s
}

func (s *strangerRig) say(messages ...string) {
	for _, m := range messages {
		if err := s.peer.Write(s.t.Context(), [][]byte{[]byte(m)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *strangerRig) hear(want string) {
	s.t.Helper()
	m, err := s.peer.Read(s.t.Context())
	if err != nil || !strings.HasPrefix(string(m), want) {
		s.t.Errorf("heard %.200s, %v, want %s", m, err, want)
	}
}

const showing = `["push",["pipeline",0,["show"],[]]]`

// What a first flight has behind its restore is decoded when that is answered, in order.
func TestAFirstFlight(t *testing.T) {
	t.Parallel()
	s := newStrangerRig(t, 1<<20, time.Minute)
	s.say(showing, `["pull",1]`, `["push",["pipeline",1,["note"],["a"]]]`, `["push",["pipeline",1,["note"],["`+strings.Repeat("x", 3<<20)+`"]]]`,
		`["push",["pipeline",1,["note"],["c"]]]`, `["pull",4]`)
	call := <-s.calls
	if n := s.c.Stats().Exports; n != 1 {
		t.Errorf("%d things were pushed", n)
	}
	var notes []int
	s.in.Trust("ref")
	call.Return(NewMethods(map[string]any{"note": func(text string) { notes = append(notes, len(text)) }}))
	s.hear(`["resolve",1,["export",`)
	s.hear(`["resolve",4,["undefined"]]`)
	if fmt.Sprint(notes) != "[1 3145728 1]" {
		t.Errorf("it came as %v", notes)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 100<<10)
	for _, c := range []struct {
		name string
		say  []string
		fail bool // what was asked
		hear []string
	}{
		{"a large value", []string{`["push","` + large + `"]`}, false, []string{`["abort",["error","Error","overloaded: too large"`}},
		{"a large call", []string{`["push",["pipeline",0,["show"],["` + large + `"]]]`}, false, []string{`["abort",["error","Error","overloaded: too large"`}},
		{"a large call on what has failed", []string{showing, `["pull",1]`, `["push",["pipeline",1,["a"],["` + large + `"]]]`}, true,
			[]string{`["reject",1,`, `["abort",["error","Error","overloaded: too large"`}},
		{"a small call on what has failed", []string{showing, `["push",["pipeline",1,["a"],[]]]`, `["pull",2]`}, true, []string{`["reject",2,`}},
		{"a pipe", []string{`["pipe"]`}, false, []string{`["abort",["error","Error","overloaded: too large"`}},
		{"a value", []string{`["push",[["a"]]]`, `["pull",1]`}, false, []string{`["resolve",1,[["a"]]]`}},
		{"what has too many steps", []string{`["push",[[` + strings.Repeat("0,", strangerSteps) + `0]]]`, `["push",["remap",1,[],[],[0]]]`, `["pull",2]`}, false,
			[]string{`["reject",2,["error","RangeError","overloaded: the map takes too many steps"]]`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStrangerRig(t, 1<<20, time.Minute)
			s.say(c.say...)
			if c.fail {
				(<-s.calls).Fail(errOverloaded("no such ref"))
			}
			for _, want := range c.hear {
				s.hear(want)
			}
		})
	}
	t.Run("when it takes too long", func(t *testing.T) {
		t.Parallel()
		s := newStrangerRig(t, 1<<20, 10*time.Millisecond)
		s.say(showing, `["push",["pipeline",1,["a"],[]]]`)
		s.hear(`["abort",["error","Error","overloaded: no memory"`)
	})
	t.Run("when all is held", func(t *testing.T) {
		t.Parallel()
		s := newStrangerRig(t, 1<<20, time.Minute)
		other := s.strangers.Open("other")
		defer other.Close()
		if !other.TryGrow(4 << 20) {
			t.Fatal("no room")
		}
		s.say(showing, `["pull",1]`)
		s.hear(`["reject",1,["error","Error","overloaded: no memory"`)
	})
}

// Of a stranger's many calls so many are taken in at once, and all are answered.
func TestStrangersCallsWait(t *testing.T) {
	t.Parallel()
	s := newStrangerRig(t, 1<<20, time.Minute)
	const calls = 4 * intake.PendingCalls
	for i := range calls {
		s.say(showing, fmt.Sprintf(`["pull",%d]`, i+1), fmt.Sprintf(`["release",%d,1]`, i+1))
	}
	for range calls {
		call := <-s.calls
		if n := s.c.Stats().Calls; n > intake.PendingCalls {
			t.Errorf("%d calls are held", n)
		}
		call.Return(nil)
	}
}

// Whether it is JSON is for the parser to say.
func TestDecodedBytesOfWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	for _, msg := range []string{``, `"`, `"\`, `"\"`, `["a`, `\\"`, `}{][`} {
		if n := jsontext.DecodedBytes([]byte(msg)); n < len(msg) {
			t.Errorf("%q: %d", msg, n)
		}
	}
}

// Of a large batch the first lines are taken in before the rest is read: so they can show a ref, and the rest of a stranger's
// is not read.
func TestALargeBatch(t *testing.T) {
	t.Parallel()
	call := `["push",["pipeline",1,["note"],["` + strings.Repeat("x", 2<<20) + `"]]]` + "\n" + `["pull",2]`
	for _, c := range []struct {
		name, body string
		trusted    bool
		status     int
		answer     string
	}{
		{"of who has shown a ref", showing + "\n" + call, true, http.StatusOK, `["resolve",2,2097152]`},
		{"of who has shown none", showing + "\n" + `["pull",1]` + "\n" + call, false, http.StatusOK, `["reject",1,["error","Error","overloaded: no such ref"]]` + "\n" + `["abort",["error","Error","overloaded: too large"`},
		{"of one line", call, false, http.StatusOK, `["abort",["error","Error","overloaded: too large"`},
		{"beyond all", showing + "\n" + call + strings.Repeat("x", 4<<20), true, http.StatusRequestEntityTooLarge, "the batch is too large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			strangers, known := membudget.New(membudget.Config{Total: 4 << 20}), membudget.New(membudget.Config{Total: 64 << 20})
			in := (&intake.Config{Strangers: strangers, Known: known, MaxStrangerBytes: 1 << 20, MaxWait: time.Minute,
				TooLarge: errOverloaded("too large"), Overloaded: errOverloaded("no memory")}).Open("address")
			main := NewMethods(map[string]any{"show": func(call *Call) {
				if !c.trusted {
					call.Fail(errOverloaded("no such ref"))
					return
				}
				in.Trust("ref")
				call.Return(NewMethods(map[string]any{"note": func(text string) float64 { return float64(len(text)) }}))
			}})
			r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(c.body))) // of no length
			w := httptest.NewRecorder()
			ServeBatch(w, r, Config{Main: main, Intake: in, Limits: Limits{QueuedBytes: 4 << 20}}, AcceptOptions{})
			if got := w.Body.String(); w.Code != c.status || !strings.HasPrefix(got, c.answer) {
				t.Errorf("%d %.300s, want %d %s", w.Code, got, c.status, c.answer)
			}
			in.Close()
			if n := strangers.Stats().Held + known.Stats().Held; n != 0 {
				t.Errorf("%d bytes are held for nobody", n)
			}
		})
	}
}
