//go:build node

package e2e

// Random histories in which the JavaScript client takes part, over Cap'n Web. make e2e runs this: it needs Node, and
// clients/js as npm run build leaves it (clients/js/test/party.ts).

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestHistoriesWithJavaScript(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		runHistory(t, newRand(t), db, func(srv *server, byHTTP *httpParty) party {
			p := newNodeParty(t, srv)
			byHTTP.again = func(b *sentBatch, seq uint64) ([]client.Outcome, int, error) { return p.again(srv, byHTTP, b, seq) }
			return p
		})
	})
}

// nodeParty is the JavaScript client, in a process of its own.
type nodeParty struct {
	link

	mu      sync.Mutex
	in      io.Writer
	last    int
	waiting map[int]chan nodeReply
}

type nodeReply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Code, Message string }
}

func newNodeParty(t testing.TB, srv *server) *nodeParty {
	t.Helper()
	p := &nodeParty{link: newLink(t, srv), waiting: map[int]chan nodeReply{}}
	cmd := exec.Command("node", "../../clients/js/dist/test/party.js", t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.in = in
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(out)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have followers that nobody has ended
		<-read
		_ = cmd.Wait()
	})
	return p
}

// read hands its answers on until it has ended.
func (p *nodeParty) read(out io.Reader) {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var r nodeReply
		if err := json.Unmarshal(line, &r); err != nil {
			p.t.Errorf("the JavaScript client says %q: %v", line, err)
			break
		}
		p.mu.Lock()
		to := p.waiting[r.ID]
		delete(p.waiting, r.ID)
		p.mu.Unlock()
		to <- r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, to := range p.waiting {
		close(to)
	}
	p.waiting = nil
}

// ask has something done.
func (p *nodeParty) ask(what string, request map[string]any, to any) error {
	reply := make(chan nodeReply, 1)
	p.mu.Lock()
	if p.waiting == nil {
		p.mu.Unlock()
		return fmt.Errorf("the JavaScript client has ended")
	}
	p.last++
	p.waiting[p.last] = reply
	request["id"], request["what"] = p.last, what
	line, err := json.Marshal(request)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case r, ok := <-reply:
		switch {
		case !ok:
			return fmt.Errorf("the JavaScript client has ended")
		case r.Error != nil:
			if code, ok := fault.ParseCode(r.Error.Code); ok {
				return code.With("%s", r.Error.Message)
			}
			return fmt.Errorf("%s", r.Error.Message)
		}
		return json.Unmarshal(r.Result, to)
	case <-bounded(p.t).Done():
		return fmt.Errorf("the JavaScript client does not answer %s", line)
	}
}

// at is a request about what is behind a door.
func (p *nodeParty) at(d door, more map[string]any) map[string]any {
	more["ref"] = p.ref(d.ref).Text()
	if d.open != "" {
		more["open"] = d.open
	}
	return more
}

// by is a request for a sight.
func (p *nodeParty) by(in sight, more map[string]any) map[string]any {
	if in.keys != nil {
		more["keys"] = in.keys
	}
	more["compacted"] = in.compacted
	if in.byTime {
		more["order"] = "time"
	}
	return p.at(in.door, more)
}

func (p *nodeParty) send(b *sentBatch) ([]client.Outcome, error) {
	ops := []any{}
	for _, o := range b.ops {
		args := []any{}
		for _, a := range o.Args {
			args = append(args, map[string]any{"name": a.Name, "json": string(a.JSON)})
		}
		op := map[string]any{"method": o.Method, "args": args}
		if o.Expected != nil {
			op["expected"] = o.Expected.JSON
		}
		ops = append(ops, op)
	}
	request := p.at(b.in, map[string]any{"batch": b.id, "ops": ops})
	if b.makes {
		made := map[string]any{"owner": p.ref(b.owner).Text(), "fork": b.ops[0].Method == session.MethodFork}
		if b.first.ID != "" {
			made["first"] = p.ref(b.first).Text()
		}
		for _, name := range []string{"at", "message", "part", "order"} {
			if text := b.ops[0].argument(name); text != nil {
				made[name] = text
			}
		}
		request["make"] = made
	}
	var got []nodeOutcome
	err := p.ask("send", request, &got)
	return outcomesByNode(b, got), err
}

type nodeOutcome struct {
	Op, Message, Cause, Reason, Result string
	Status                             client.OutcomeStatus
	Cursor, At                         uint64
}

func outcomesByNode(b *sentBatch, list []nodeOutcome) (all []client.Outcome) {
	for _, o := range list {
		got := client.Outcome{OpID: o.Op, Batch: b.id, Status: o.Status, Message: o.Message, Cursor: o.Cursor, Cause: o.Cause, At: o.At}
		got.Reason, _ = fault.ParseCode(o.Reason)
		if o.Result != "" {
			got.Result = []byte(o.Result)
		}
		all = append(all, got)
	}
	return all
}

// again sends a batch of another's outbox over Cap'n Web, by the address of the server itself.
func (p *nodeParty) again(srv *server, from *httpParty, b *sentBatch, seq uint64) ([]client.Outcome, int, error) {
	ops := []any{}
	for i, o := range b.ops {
		args := []any{}
		for _, a := range o.Args {
			args = append(args, map[string]any{"name": a.Name, "json": string(a.JSON)})
		}
		op := map[string]any{"id": opID(b.id, i), "seq": seq + uint64(i), "method": o.Method, "args": args, "dependsOn": []string{}}
		if o.Expected != nil {
			op["expected"] = map[string]any{"cursor": o.Expected.JSON}
		}
		ops = append(ops, op)
	}
	var got struct {
		Duplicates int
		Outcomes   []nodeOutcome
	}
	err := p.ask("again", map[string]any{"url": "http://" + srv.address() + "/rpc", "ref": b.in.ref.Text(),
		"stream": map[string]any{"outbox": from.id, "secret": from.secret, "incarnation": 1},
		"batch":  map[string]any{"id": b.id, "atomic": false, "ackedThrough": 0, "ops": ops}}, &got)
	return outcomesByNode(b, got.Outcomes), got.Duplicates, err
}

// The payloads of what it reads are texts.
type (
	nodeEvent struct {
		shownEvent
		Payload string `json:"payload"`
	}
	nodeEntry struct {
		shownEntry
		Payload string `json:"payload"`
	}
	nodeState struct {
		shownState
		Entries []nodeEntry `json:"entries"`
	}
)

func shownByNode(list []nodeEvent) []shownEvent {
	var all []shownEvent
	for _, e := range list {
		e.shownEvent.Payload = json.RawMessage(e.Payload)
		all = append(all, e.shownEvent)
	}
	return tidyEvents(all)
}

func (s *nodeState) shown() *shownState {
	if s == nil {
		return nil
	}
	for _, e := range s.Entries {
		e.shownEntry.Payload = json.RawMessage(e.Payload)
		s.shownState.Entries = append(s.shownState.Entries, e.shownEntry)
	}
	return s.tidy()
}

func (p *nodeParty) state(in sight, at uint64) (*shownState, error) {
	var s nodeState
	err := p.ask("state", p.by(in, map[string]any{"at": at}), &s)
	return s.shown(), err
}

func (p *nodeParty) events(in sight) ([]shownEvent, error) {
	var list []nodeEvent
	err := p.ask("events", p.by(in, map[string]any{}), &list)
	return shownByNode(list), err
}

// nodeWatching is a follower in its process.
type nodeWatching struct {
	p      *nodeParty
	number int
}

func (p *nodeParty) follow(in sight, from start) (watching, error) {
	w := nodeWatching{p: p}
	err := p.ask("follow", p.by(in, map[string]any{"from": map[string]any{"cursor": from.cursor, "state": from.state}}), &w.number)
	return w, err
}

func (w nodeWatching) finish(at uint64) (watched, error) {
	var got struct {
		Base, State *nodeState
		Events      []nodeEvent
		Ended       string
	}
	if err := w.p.ask("finish", map[string]any{"follower": w.number, "at": at}, &got); err != nil {
		return watched{}, err
	}
	out := watched{Base: got.Base.shown(), State: got.State.shown(), Events: shownByNode(got.Events)}
	for _, e := range out.Events {
		out.at = e.Cursor
	}
	var known bool
	if out.Ended, known = fault.ParseCode(got.Ended); !known && got.Ended != "" {
		return out, fmt.Errorf("%s", got.Ended)
	}
	return out, nil
}
