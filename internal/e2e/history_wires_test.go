package e2e

// Who takes part in a random history: a writer and reader over one wire, each over a link of its own that is cut. What
// they read is in the form that the HTTP API has, so that it compares.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/session"
)

// party is one of them. A read or a batch that a cut link has stopped is tried again by it.
type party interface {
	send(b *sentBatch) ([]client.Outcome, error)
	// state is what is shown at a cursor, 0 for now.
	state(in sight, at uint64) (*shownState, error)
	// events are all that are shown from the first to the session's last.
	events(in sight) ([]shownEvent, error)
	// follow follows from a cursor, whose hash it names, or from the state there.
	follow(in sight, from start) (watching, error)
	// cuts is its link to the server, to be cut.
	cuts() *faultproxy.Proxy
}

// door is how a session is reached: by a ref of its own, or opened through one of its space or of a session above it.
type door struct {
	ref  capability.Ref
	open string // "" for the ref's own
}

// session is the id of the one that it leads to.
func (d door) session() string {
	if d.open != "" {
		return d.open
	}
	return d.ref.Target()
}

// sight is what a reader asks for, and what its ref shows.
type sight struct {
	door
	name      string
	grant     capability.Grant // its limits alone
	keys      []string         // that are asked for; nil is all
	compacted bool
	byTime    bool // the session is ordered by time
}

// whole says whether nothing is hidden from it.
func (s *sight) whole() bool {
	return s.grant.ShowsAllKeys() && s.grant.VisibleFrom <= 1 && s.keys == nil
}

// start is where a follower begins.
type start struct {
	cursor uint64
	hash   string
	state  bool // at the state of now
}

// watching is a follower under way.
type watching interface {
	// finish ends it at a cursor, or when its ref has ended.
	finish(at uint64) (watched, error)
}

// watched is what a follower was shown.
type watched struct {
	Base   *shownState // that it began from; nil for none
	Events []shownEvent
	State  *shownState // as the client follows it; nil if it does not
	Ended  fault.Code  // why its ref has ended
	at     uint64      // the last cursor that it was told of
}

// sentBatch is a batch of a history.
type sentBatch struct {
	id    string
	by    string // the party
	in    door   // of a batch that makes a session: the space
	makes bool
	owner capability.Ref // of the session that it makes
	first capability.Ref // that the source or parent of that is reached by
	ops   []planOp
	verbs []string // what each op is to do
	got   []client.Outcome
}

// target is the id of the session that it is for.
func (b *sentBatch) target() string {
	if b.makes {
		return b.owner.Target()
	}
	return b.in.session()
}

// argument reads an argument of the first op.
func (b *sentBatch) argument(name string, to any) {
	if text := b.ops[0].argument(name); text != nil {
		if err := json.Unmarshal(text, to); err != nil {
			panic(err)
		}
	}
}

// shownEvent is an event as its reader was shown it.
type shownEvent struct {
	Cursor  uint64          `json:"cursor"`
	Method  string          `json:"method"`
	Key     string          `json:"key"`
	Schema  uint32          `json:"schema_version"`
	Payload json.RawMessage `json:"payload"`
	Ref     string          `json:"ref"`
	Actor   string          `json:"actor"`
	Op      string          `json:"op"`
	Batch   string          `json:"batch"`
	Outbox  string          `json:"outbox"`
	At      int64           `json:"at"`
	Hash    string          `json:"hash"`
	Hidden  bool            `json:"hidden"`
}

// shownEntry is an entry of a state. Ord is not shown by every client.
type shownEntry struct {
	Key     string          `json:"key"`
	Cursor  uint64          `json:"cursor"`
	Schema  uint32          `json:"schema_version"`
	Ord     *[2]uint64      `json:"ord"`
	Claim   *shownClaim     `json:"claim"`
	Payload json.RawMessage `json:"payload"`
}

type shownClaim struct {
	Cursor uint64 `json:"cursor"`
	Until  int64  `json:"until"`
	Outbox string `json:"outbox"`
	Worker string `json:"worker"`
	Ref    string `json:"ref"`
	Actor  string `json:"actor"`
}

type shownTurn struct {
	Message string `json:"message"`
	Status  string `json:"status"`
	Begun   uint64 `json:"begun"`
	Ended   uint64 `json:"ended"`
	Outbox  string `json:"outbox"`
	Ref     string `json:"ref"`
}

// shownState is a state as its reader was shown it, with its entries in order.
type shownState struct {
	Cursor  uint64       `json:"cursor"`
	Hash    string       `json:"hash"`
	LeftOut []string     `json:"left_out"`
	Turns   []shownTurn  `json:"turns"`
	Entries []shownEntry `json:"entries"`
}

// tidy puts a state that was read as JSON into the one form that compares.
func (s *shownState) tidy() *shownState {
	for i := range s.Entries {
		s.Entries[i].Payload = compact(s.Entries[i].Payload)
	}
	slices.SortFunc(s.Entries, func(a, b shownEntry) int {
		if a.Ord == nil || b.Ord == nil {
			return 0 // it came in order
		}
		if c := slices.Compare(a.Ord[:], b.Ord[:]); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
	slices.Sort(s.LeftOut)
	return s
}

// tidyEvents does the same with events.
func tidyEvents(events []shownEvent) []shownEvent {
	for i := range events {
		events[i].Payload = compact(events[i].Payload)
	}
	return events
}

// compact takes the white space between the parts of a JSON text away; nothing else may differ.
func compact(text json.RawMessage) json.RawMessage {
	if len(text) == 0 || string(text) == "null" { // it was purged
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		panic(fmt.Sprintf("no JSON: %v: %s", err, text))
	}
	return b.Bytes()
}

// link is a party's way to the server.
type link struct {
	t     testing.TB
	proxy *faultproxy.Proxy
}

func newLink(t testing.TB, srv *server) link {
	t.Helper()
	proxy, err := faultproxy.Listen(srv.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return link{t, proxy}
}

// ref is a ref by this way.
func (l link) ref(ref capability.Ref) capability.Ref {
	ref.Hosts = []string{l.proxy.Addr()}
	return ref
}

// goParty is the Go client, over Cap'n Proto.
type goParty struct {
	link
	c *client.Client
}

func newGoParty(t testing.TB, srv *server) *goParty {
	return &goParty{newLink(t, srv), openClientWith(t, client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir()), Reconnect: client.Reconnect{Initial: 5 * time.Millisecond, Max: 100 * time.Millisecond}})}
}

func (p *goParty) enter(d door) (*client.Session, error) {
	ctx := bounded(p.t)
	if d.open == "" {
		return p.c.Session(ctx, p.ref(d.ref))
	}
	if capability.IsSession(d.ref.Target()) {
		s, err := p.c.Session(ctx, p.ref(d.ref))
		if err != nil {
			return nil, err
		}
		return s.Open(d.open)
	}
	space, err := p.c.Space(ctx, p.ref(d.ref))
	if err != nil {
		return nil, err
	}
	return space.Open(d.open)
}

// batch begins the client's batch for b, with what makes its session in it.
func (p *goParty) batch(b *sentBatch) (*client.Batch, error) {
	if !b.makes {
		s, err := p.enter(b.in)
		if err != nil {
			return nil, err
		}
		return s.Batch().SetID(b.id), nil
	}
	space, err := p.c.Space(bounded(p.t), p.ref(b.in.ref))
	if err != nil {
		return nil, err
	}
	o := client.CreateOptions{Owner: p.ref(b.owner), BatchID: b.id}
	var first *client.Session
	if b.first.ID != "" {
		if first, err = p.enter(door{ref: b.first}); err != nil {
			return nil, err
		}
	}
	if b.ops[0].Method == session.MethodCreate {
		b.argument("part", &o.Part)
		o.Parent, o.ByTime = first, b.ops[0].argument("order") != nil
		_, to := space.Create(o)
		return to, nil
	}
	var at uint64
	b.argument("at", &at)
	b.argument("message", &o.Message)
	_, to := space.Fork(first, at, o)
	return to, nil
}

func (p *goParty) send(b *sentBatch) ([]client.Outcome, error) {
	to, err := p.batch(b)
	if err != nil {
		return nil, err
	}
	(&planBatch{Creates: b.makes, Ops: b.ops}).fill(to)
	ticket, err := to.Commit(bounded(p.t))
	if err != nil {
		return nil, err
	}
	return ticket.Wait(bounded(p.t))
}

func (p *goParty) state(in sight, at uint64) (*shownState, error) {
	s, err := p.enter(in.door)
	if err != nil {
		return nil, err
	}
	got, err := s.SnapshotWith(bounded(p.t), client.SnapshotOptions{At: client.Position{Cursor: at}, Keys: in.keys, Compacted: in.compacted})
	if err != nil {
		return nil, err
	}
	out := &shownState{Cursor: got.Cursor, Hash: hashed(session.Hash(got.Hash)), LeftOut: got.LeftOut}
	for _, e := range got.Entries {
		entry := shownEntry{Key: e.Key, Cursor: e.Cursor, Schema: e.Schema, Payload: e.Payload}
		if c := e.Claim; c != nil {
			entry.Claim = &shownClaim{c.Cursor, c.Until.UnixMilli(), c.Outbox, c.Worker, c.Ref, c.Actor}
		}
		out.Entries = append(out.Entries, entry)
	}
	for _, turn := range got.Turns {
		out.Turns = append(out.Turns, shownTurn{turn.Message, turn.Status, turn.Begun, turn.Ended, turn.Outbox, turn.Ref})
	}
	return out.tidy(), nil
}

// hashed is a hash as the API writes it.
func hashed(h session.Hash) string {
	if h == (session.Hash{}) {
		return ""
	}
	return h.String()
}

func shownByGo(e *client.Event) shownEvent {
	if e.Hidden {
		return shownEvent{Cursor: e.Cursor, Hash: hashed(session.Hash(e.Hash)), Hidden: true}
	}
	return shownEvent{Cursor: e.Cursor, Method: e.Method, Key: e.Key, Schema: e.Schema, Payload: compact(e.Payload), Ref: e.Ref, Actor: e.Actor, Op: e.Op,
		Batch: e.Batch, Outbox: e.Outbox, At: e.At.UnixMilli(), Hash: hashed(session.Hash(e.Hash))}
}

func (p *goParty) events(in sight) ([]shownEvent, error) {
	s, err := p.enter(in.door)
	if err != nil {
		return nil, err
	}
	var all []shownEvent
	for after := (client.Position{}); ; {
		page, err := s.EventsOf(bounded(p.t), after, in.keys, 7)
		if err != nil || len(page.Events) == 0 {
			return all, err
		}
		for i := range page.Events {
			e := &page.Events[i]
			all, after = append(all, shownByGo(e)), client.Position{Cursor: e.Cursor, Hash: e.Hash}
		}
	}
}

// gathering is what a follower in this process has been shown so far.
type gathering struct {
	mu    sync.Mutex
	got   watched
	stop  context.CancelFunc
	ended chan struct{}
	err   error // why it ended
	more  chan struct{}
}

func gather(t testing.TB, base *shownState, run func(ctx context.Context, see func(shownEvent)) error) *gathering {
	ctx, stop := context.WithCancel(t.Context())
	g := &gathering{got: watched{Base: base}, stop: stop, ended: make(chan struct{}), more: make(chan struct{}, 1)}
	go func() {
		defer close(g.ended)
		g.err = run(ctx, func(e shownEvent) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.got.Events, g.got.at = append(g.got.Events, e), e.Cursor
			select {
			case g.more <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() { stop(); <-g.ended })
	return g
}

func (g *gathering) finish(at uint64) (watched, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		g.mu.Lock()
		there := max(g.got.at, g.got.since()) >= at
		g.mu.Unlock()
		select {
		case <-g.ended:
		case <-g.more:
			continue
		case <-deadline.C:
			return g.got, fmt.Errorf("it is at cursor %d", g.got.at)
		default:
			if !there {
				select {
				case <-g.ended:
				case <-g.more:
				case <-deadline.C:
				}
				continue
			}
		}
		break
	}
	g.stop()
	<-g.ended
	if g.err == nil || errors.Is(g.err, context.Canceled) || fault.CodeOf(g.err) == fault.Canceled {
		return g.got, nil
	}
	g.got.Ended = fault.CodeOf(g.err)
	if g.got.Ended == fault.None {
		return g.got, g.err
	}
	return g.got, nil
}

// since is the cursor that it began at.
func (w *watched) since() uint64 {
	if w.Base == nil {
		return 0
	}
	return w.Base.Cursor
}

// beginning is the state that a follower begins from, if it begins from one, and the position.
func beginning(p party, in sight, from start) (*shownState, start, error) {
	if !from.state {
		return nil, from, nil
	}
	base, err := p.state(in, 0)
	if err != nil {
		return nil, from, err
	}
	return base, start{cursor: base.Cursor, hash: base.Hash}, nil
}

func (p *goParty) follow(in sight, from start) (watching, error) {
	base, from, err := beginning(p, in, from)
	if err != nil {
		return nil, err
	}
	s, err := p.enter(in.door)
	if err != nil {
		return nil, err
	}
	hash, err := session.ParseHash(from.hash)
	if from.hash != "" && err != nil {
		return nil, err
	}
	return gather(p.t, base, func(ctx context.Context, see func(shownEvent)) error {
		return s.Subscribe(ctx, client.SubscribeOptions{After: from.cursor, Hash: client.Hash(hash), Keys: in.keys, Compacted: in.compacted}, func(e client.Event) error {
			see(shownByGo(&e))
			return nil
		})
	}), nil
}

// httpParty is a program that speaks plain HTTP, and is its own outbox.
type httpParty struct {
	link
	id, secret string
	http       *http.Client

	seqs map[string]uint64 // by session: the last

	// again repeats a batch with its first op's seq over another wire; nil if there is none.
	again     func(b *sentBatch, seq uint64) (got []client.Outcome, duplicates int, err error)
	elsewhere int // batches that were
}

func newHTTPParty(t testing.TB, srv *server) *httpParty {
	secret := capability.NewSecret()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	hash := secret.Hash()
	return &httpParty{link: newLink(t, srv), id: "http-" + ulid.Make().String(), secret: base64.RawURLEncoding.EncodeToString(hash[:]),
		http: &http.Client{Transport: transport}, seqs: map[string]uint64{}}
}

// request asks once.
func (p *httpParty) request(ctx context.Context, method, path string, ref capability.Ref, body any) (*http.Response, error) {
	var from io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		from = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.proxy.Addr()+"/api/v1"+path, from)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+ref.Text())
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else if strings.Contains(path, "/events?") && method == "" {
		req.Header.Set("Accept", "text/event-stream")
	}
	return p.http.Do(req)
}

// ask asks until it is answered, whatever becomes of the link, and gives the refusal if that is the answer.
func (p *httpParty) ask(method, path string, ref capability.Ref, body, to any) (refused error, err error) {
	for ctx := bounded(p.t); ; {
		var text []byte
		r, err := p.request(ctx, method, path, ref, body)
		if err == nil {
			text, err = io.ReadAll(r.Body)
			r.Body.Close()
		}
		if err == nil && r.StatusCode != http.StatusOK {
			if refused := refusalOf(text); !fault.CodeOf(refused).Transient() {
				return refused, nil
			}
		} else if err == nil {
			return nil, json.Unmarshal(text, to)
		}
		if within(20*time.Millisecond, ctx.Done()) {
			return nil, fmt.Errorf("%s: %w: %s", path, ctx.Err(), text)
		}
	}
}

// refusalOf reads the body of one.
func refusalOf(text []byte) error {
	var e struct {
		Error struct {
			Number        uint16
			Code, Message string
		}
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("%s", text)
	}
	return fault.Code(e.Error.Number).With("%s", e.Error.Message)
}

// body is the batch as it is sent.
func (p *httpParty) body(b *sentBatch, seq uint64) map[string]any {
	ops := []any{}
	for i, o := range b.ops {
		args := []any{}
		for _, a := range o.Args {
			if a.Ref != nil {
				args = append(args, map[string]any{"name": a.Name, "ref": map[string]any{"op": a.Ref.Op, "path": a.Ref.Path}})
			} else {
				args = append(args, map[string]any{"name": a.Name, "json": string(a.JSON)})
			}
		}
		op := map[string]any{"op_id": opID(b.id, i), "seq": seq + uint64(i), "method": o.Method, "args": args}
		if o.Expected != nil {
			op["expected_cursor"] = o.Expected.JSON
		}
		ops = append(ops, op)
	}
	body := map[string]any{"outbox": p.id, "secret": p.secret, "incarnation": 1, "batch_id": b.id, "ops": ops}
	if b.first.ID != "" {
		body["with"] = []string{b.first.Text()}
	}
	return body
}

type httpAck struct {
	Duplicates int
	Outcomes   []struct {
		OpID   string               `json:"op_id"`
		Status client.OutcomeStatus `json:"status"`
		Cursor uint64
		Cause  string
		Result json.RawMessage
		Error  struct {
			Number        uint16
			Code, Message string
			At            uint64
		}
	}
}

func (p *httpParty) send(b *sentBatch) ([]client.Outcome, error) {
	seq := p.seqs[b.target()] + 1
	path, body := "/sessions/"+b.target()+"/batches", p.body(b, seq)
	if b.makes {
		path, body = "/spaces/"+b.in.ref.Target()+"/sessions", map[string]any{"session": b.target(), "ref": b.owner.ID, "batch": body}
	}
	var first []client.Outcome
	for again := range 2 { // each batch is sent twice, and the second answer is to be the first
		var ack httpAck
		refused, err := p.ask(http.MethodPost, path, b.in.ref, body, &ack)
		if err != nil {
			return nil, err
		}
		if refused != nil { // nothing was recorded
			for i := range b.ops {
				first = append(first, client.Outcome{OpID: opID(b.id, i), Status: client.Denied, Reason: fault.CodeOf(refused), Message: refused.Error()})
			}
			return first, nil
		}
		var got []client.Outcome
		for _, o := range ack.Outcomes {
			got = append(got, client.Outcome{OpID: o.OpID, Batch: b.id, Status: o.Status, Cursor: o.Cursor, Cause: o.Cause, Result: o.Result,
				Reason: fault.Code(o.Error.Number), Message: o.Error.Message, At: o.Error.At})
		}
		if again > 0 && (canonical(got) != canonical(first) || ack.Duplicates != len(b.ops)) {
			return nil, fmt.Errorf("asked again, %d duplicates:\n%s\nat first\n%s", ack.Duplicates, canonical(got), canonical(first))
		}
		first = got
	}
	if p.again != nil && !b.makes && b.in.open == "" {
		got, duplicates, err := p.again(b, seq)
		if err != nil || duplicates != len(b.ops) || canonical(got) != canonical(first) {
			return nil, fmt.Errorf("over another wire, %d duplicates, %v:\n%s\nat first\n%s", duplicates, err, canonical(got), canonical(first))
		}
		p.elsewhere++
	}
	p.seqs[b.target()] += uint64(len(b.ops))
	return first, nil
}

// query is a sight's as parameters.
func (s *sight) query(more url.Values) string {
	if s.keys != nil {
		more.Set("keys", strings.Join(s.keys, ","))
	}
	return more.Encode()
}

func (p *httpParty) state(in sight, at uint64) (*shownState, error) {
	v := url.Values{}
	if at > 0 {
		v.Set("at", strconv.FormatUint(at, 10))
	}
	if in.compacted {
		v.Set("compacted", "true")
	}
	var s shownState
	refused, err := p.ask(http.MethodGet, "/sessions/"+in.session()+"/snapshot?"+in.query(v), in.ref, nil, &s)
	if err = errors.Join(refused, err); err != nil {
		return nil, err
	}
	return s.tidy(), nil
}

func (p *httpParty) events(in sight) ([]shownEvent, error) {
	var all []shownEvent
	for after, hash := uint64(0), ""; ; {
		var page struct {
			After  uint64
			Hash   string
			More   bool
			Events []shownEvent
		}
		v := url.Values{"after": {strconv.FormatUint(after, 10)}, "hash": {hash}, "limit": {"11"}}
		refused, err := p.ask(http.MethodGet, "/sessions/"+in.session()+"/events?"+in.query(v), in.ref, nil, &page)
		if err = errors.Join(refused, err); err != nil {
			return nil, err
		}
		all = append(all, tidyEvents(page.Events)...)
		if after, hash = page.After, page.Hash; !page.More {
			return all, nil
		}
	}
}

func (p *httpParty) follow(in sight, from start) (watching, error) {
	base, from, err := beginning(p, in, from)
	if err != nil {
		return nil, err
	}
	return gather(p.t, base, func(ctx context.Context, see func(shownEvent)) error {
		for {
			err := p.stream(ctx, in, from, func(e shownEvent) {
				from.cursor, from.hash = e.Cursor, e.Hash
				see(e)
			})
			if code := fault.CodeOf(err); code != fault.None && !code.Transient() {
				return err
			}
			if within(20*time.Millisecond, ctx.Done()) {
				return ctx.Err()
			}
		}
	}), nil
}

// stream reads one event stream to its end.
func (p *httpParty) stream(ctx context.Context, in sight, from start, see func(shownEvent)) error {
	v := url.Values{"after": {strconv.FormatUint(from.cursor, 10)}, "hash": {from.hash}}
	r, err := p.request(ctx, "", "/sessions/"+in.session()+"/events?"+in.query(v), in.ref, nil)
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(r.Body)
		return refusalOf(text)
	}
	return readStream(r.Body, see)
}

// readStream reads server-sent events. What ends the stream is its error; nil is a link that broke.
func readStream(from io.Reader, see func(shownEvent)) error {
	scan := bufio.NewScanner(from)
	scan.Buffer(nil, 1<<20)
	kind, data := "", ""
	for scan.Scan() {
		name, value, _ := strings.Cut(scan.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "data":
			data += value + "\n"
		case "":
			if kind == "ended" {
				return refusalOf([]byte(`{"error":` + data + `}`))
			}
			var e shownEvent
			if data != "" {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					return err
				}
				e.Payload = compact(e.Payload)
				see(e)
			}
			kind, data = "", ""
		}
	}
	return nil // what stands after the last empty line was cut off
}

func (l link) cuts() *faultproxy.Proxy { return l.proxy }
