package e2e

// What peers that have shown nothing can make the server hold: every attack on its
// memory, as a table, against the real process. Memory is read from /proc, so this is
// for Linux.

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
)

// attack is something that strangers send, over and over as long as they are heard.
type attack struct {
	name string
	at   endpoint
	say  func(w *bytes.Buffer, s *attackTarget)
}

// endpoint is where a connection comes in, and whether it says a thing once, or again and again.
type endpoint struct {
	open func(s *attackTarget) (net.Conn, error)
	once bool
}

// attackTarget is where it is sent, and how large a large message is.
type attackTarget struct {
	web, stream string // addresses
	size        int
}

// A thing of JavaScript's that takes much more memory than its text.
func jsonOf(head, unit, tail string) func(*bytes.Buffer, *attackTarget) {
	return func(w *bytes.Buffer, s *attackTarget) {
		message(w, 1, []byte(head+strings.Repeat(unit, s.size/len(unit))+tail))
	}
}

var attacks = []attack{
	{"numbers", ws("/rpc"), jsonOf(`["push",[[`, `0,`, `0]]]`)},
	{"numbers that are no expression", ws("/rpc"), jsonOf(`["push",[`, `0,`, `0]]`)},
	{"empty arrays", ws("/rpc"), jsonOf(`["push",[`, `[],`, `0]]`)},
	{"arrays in arrays", ws("/rpc"), jsonOf(`["push",[[`, `[[]],`, `0]]]`)},
	{"objects", ws("/rpc"), jsonOf(`["push",[[`, `{"":{},"a":0},`, `0]]]`)},
	{"exports", ws("/rpc"), jsonOf(`["push",[[`, `["export",-1],`, `0]]]`)},
	{"a remap", ws("/rpc"), jsonOf(`["push",["remap",0,[],[],[`, `["pipeline",0,["a"]],`, `0]]]`)},
	{"a path", ws("/rpc"), jsonOf(`["push",["pipeline",0,[`, `"a",`, `"a"]]]`)},
	{"arguments", ws("/rpc"), jsonOf(`["push",["pipeline",0,["hello"],[`, `{"a":0},`, `0]]]`)},
	{"calls in calls", ws("/rpc"), jsonOf(`["push",[[`, `["pipeline",0,["hello"],[]],`, `0]]]`)},
	{"an answer", ws("/rpc"), jsonOf(`["resolve",-1,[[`, `0,`, `0]]]`)},
	{"an abort", ws("/rpc"), jsonOf(`["abort",[[`, `{},`, `0]]]`)},
	{"a string", ws("/rpc"), jsonOf(`["push","`, `\u0000`, `"]`)},
	{"behind a wrong restore", ws("/rpc"), func(w *bytes.Buffer, s *attackTarget) {
		messages(w, 1, wrongRestore, `["push",["pipeline",1,["openStream"],[[`+strings.Repeat(`[[]],`, s.size/5)+`0]]]]`)
	}},
	{"a mebibyte behind a wrong restore", ws("/rpc"), func(w *bytes.Buffer, _ *attackTarget) {
		messages(w, 1, wrongRestore, `["push",["pipeline",1,["openStream"],[[`+strings.Repeat(`[[]],`, 200_000)+`0]]]]`)
	}},
	{"values of 15 KiB", ws("/rpc"), jsonUnits(`["push",[[` + strings.Repeat("[[]],", 3000) + `0]]]`)},
	{"objects of 15 KiB", ws("/rpc"), jsonUnits(`["push",[[` + strings.Repeat(`{"":{}},`, 1900) + `0]]]`)},
	{"hellos that nobody reads", ws("/rpc"), jsonUnits(`["push",["pipeline",0,["hello"],[{"version":1}]]]`, `["pull",1]`)},
	{"wrong restores", ws("/rpc"), jsonUnits(wrongRestore)},
	{"pipes", ws("/rpc"), func(w *bytes.Buffer, _ *attackTarget) {
		messages(w, 1, `["pipe"]`, `["push",["pipeline",1,["write"],["`+strings.Repeat("x", 15<<10)+`"]]]`)
	}},
	{"in fragments", ws("/rpc"), func(w *bytes.Buffer, s *attackTarget) {
		b := frame(1, 10)
		b[0] &^= 0x80
		b = append(b, `["push",[[`...)
		part := append(frame(0, 1000), bytes.Repeat([]byte(`0,`), 500)...)
		part[0] &^= 0x80
		w.Write(append(b, bytes.Repeat(part, s.size/1000)...))
	}},
	{"a frame that is promised", ws("/rpc"), func(w *bytes.Buffer, s *attackTarget) {
		w.Write(append(frame(1, uint64(s.size)), bytes.Repeat([]byte(" "), 900_000)...))
	}},

	{"a batch of numbers", post("/rpc"), bodyOf(`["push",[[`, `0,`, `0]]]`)},
	{"a batch of objects", post("/rpc"), bodyOf(`["push",[[`, `{"":{},"a":0},`, `0]]]`)},
	{"a batch of calls", post("/rpc"), bodyOf("", `["push",["pipeline",0,["hello"],[{"version":1}]]]`+"\n", "")},
	{"a batch of values", post("/rpc"), bodyOf("", `["push",[[`+strings.Repeat("[[]],", 3000)+`0]]]`+"\n", "")},
	{"a batch behind a wrong restore", post("/rpc"), bodyOf(wrongRestore+"\n"+`["push",["pipeline",1,["openStream"],[[`, `[[]],`, `0]]]]`)},
	{"a batch of shares", post("/rpc/share"), bodyOf(`["push",["pipeline",0,["syncShare"],["a","b",[[`, `[[]],`, `0]]]]]`)},
	{"shares", ws("/rpc/share"), jsonOf(`["push",["pipeline",0,["syncShare"],["a","b",[[`, `{"":{}},`, `0]]]]]`)},
	{"a share's callback", ws("/rpc/share"), jsonOf(`["push",["pipeline",0,["probeValue"],[{"nested":[[`, `[[]],`, `0]]}]]]`)},
	{"a batch of the API", post("/api/v1/sessions/ses_00000000000000000000000000/batches"), bodyOf(`{"ops":[`, `{"":{}},`, `0]}`)},
	{"a sync with a wrong secret", post("/api/share/x/sync"), bodyOf(`{"secret":"wrong","data":[`, `{"":{}},`, `0]}`)},
	{"a sync", post("/api/share/x/sync"), bodyOf(`{"data":[`, `{"type":"message"},`, `0]}`)},
	{"a sync whose secret comes last", post("/api/share/x/sync"), bodyOf(`{"data":[`, `{"":{}},`, `0],"secret":"wrong"}`)},
	{"a create", post("/api/share"), bodyOf(`{"sessionID":"`, `x`, `"}`)},
	{"headers", plainHTTP, func(w *bytes.Buffer, s *attackTarget) {
		fmt.Fprintf(w, "GET /healthz HTTP/1.1\r\nHost: %s\r\nX-Long: %s", s.web, strings.Repeat("x", s.size))
	}},

	{"a call of Cap'n Proto", ws("/capnp"), func(w *bytes.Buffer, s *attackTarget) { message(w, 2, hello(1, 16<<20-1<<10)) }},
	{"calls of Cap'n Proto", ws("/capnp"), func(w *bytes.Buffer, _ *attackTarget) { message(w, 2, hello(1, 900<<10)) }},
	{"small calls", ws("/capnp"), func(w *bytes.Buffer, _ *attackTarget) {
		message(w, 2, many(func(q uint32) []byte { return hello(q, 15<<10) }))
	}},
	{"tiny calls that nobody reads", ws("/capnp"), func(w *bytes.Buffer, _ *attackTarget) {
		message(w, 2, many(func(q uint32) []byte { return hello(q, 0) }))
	}},
	{"bootstraps", ws("/capnp"), func(w *bytes.Buffer, _ *attackTarget) { message(w, 2, many(bootstrap)) }},
	{"calls on a wrong restore", ws("/capnp"), func(w *bytes.Buffer, s *attackTarget) {
		messages(w, 2, string(bootstrap(0)), string(restoreWrong(1)), string(pipelined(2, 1, 15<<20)))
	}},
	{"a mebibyte on a wrong restore", ws("/capnp"), func(w *bytes.Buffer, s *attackTarget) {
		messages(w, 2, string(bootstrap(0)), string(restoreWrong(1)), string(pipelined(2, 1, 900<<10)))
	}},
	{"a message that is not implemented", ws("/capnp"), func(w *bytes.Buffer, s *attackTarget) { message(w, 2, provide(900<<10)) }},
	{"a stream's call", byStream, func(w *bytes.Buffer, s *attackTarget) { w.Write(hello(1, 15<<20)) }},
	{"a stream's calls", byStream, func(w *bytes.Buffer, _ *attackTarget) {
		w.Write(many(func(q uint32) []byte { return hello(q, 1<<10) }))
	}},
	{"a stream's calls on a wrong restore", byStream, func(w *bytes.Buffer, s *attackTarget) {
		w.Write(append(append(bootstrap(0), restoreWrong(1)...), pipelined(2, 1, 15<<20)...))
	}},
}

const wrongRestore = `["push",["pipeline",0,["restore"],["mooring://localhost/ses_00000000000000000000000000.oaaaaaaaaaaaaaaaaaaaaaaaaaa#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","r"]]]`

func ws(path string) endpoint {
	return endpoint{open: func(s *attackTarget) (net.Conn, error) {
		c, err := net.DialTimeout("tcp", s.web, patience)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mooring.capnp.v1\r\n\r\n", path, s.web)
		return c, nil // its answer is read by nobody, as all that follows
	}}
}

func post(path string) endpoint {
	return endpoint{once: true, open: func(s *attackTarget) (net.Conn, error) {
		c, err := net.DialTimeout("tcp", s.web, patience)
		if err == nil {
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer "+
				"ses_00000000000000000000000000.oaaaaaaaaaaaaaaaaaaaaaaaaaa#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\nTransfer-Encoding: chunked\r\n\r\n", path, s.web)
		}
		return c, err
	}}
}

var (
	plainHTTP = endpoint{once: true, open: func(s *attackTarget) (net.Conn, error) { return net.DialTimeout("tcp", s.web, patience) }}
	byStream  = endpoint{open: func(s *attackTarget) (net.Conn, error) { return net.DialTimeout("unix", s.stream, patience) }}
)

// bodyOf is a body in chunks.
func bodyOf(head, unit, tail string) func(*bytes.Buffer, *attackTarget) {
	return func(w *bytes.Buffer, s *attackTarget) {
		body := head + strings.Repeat(unit, s.size/len(unit)) + tail
		for len(body) > 0 {
			n := min(len(body), 64<<10)
			fmt.Fprintf(w, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		w.WriteString("0\r\n\r\n")
	}
}

func message(w *bytes.Buffer, opcode byte, b []byte) {
	w.Write(frame(opcode, uint64(len(b))))
	w.Write(b)
}

func messages(w *bytes.Buffer, opcode byte, all ...string) {
	for _, m := range all {
		message(w, opcode, []byte(m))
	}
}

// jsonUnits are messages, again and again.
func jsonUnits(all ...string) func(*bytes.Buffer, *attackTarget) {
	return func(w *bytes.Buffer, _ *attackTarget) {
		for w.Len() < 256<<10 {
			messages(w, 1, all...)
		}
	}
}

// framed is a message of Cap'n Proto.
func framed(build func(rpccp.Message) error) []byte {
	msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err == nil {
		var m rpccp.Message
		if m, err = rpccp.NewRootMessage(seg); err == nil {
			err = build(m)
		}
	}
	if err != nil {
		panic(err)
	}
	b, err := msg.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

// callOf is a call with so many bytes of parameters.
func callOf(q uint32, method uint16, params int, to func(rpccp.MessageTarget) error) []byte {
	return framed(func(m rpccp.Message) error {
		c, err := m.NewCall()
		if err != nil {
			return err
		}
		c.SetQuestionId(q)
		c.SetInterfaceId(wire.Gateway_TypeID)
		c.SetMethodId(method)
		target, err := c.NewTarget()
		if err != nil {
			return err
		}
		if err := to(target); err != nil {
			return err
		}
		payload, err := c.NewParams()
		if err != nil {
			return err
		}
		list, err := capnp.NewData(m.Segment(), make([]byte, params))
		if err != nil {
			return err
		}
		s, err := capnp.NewStruct(m.Segment(), capnp.ObjectSize{DataSize: 8, PointerCount: 3})
		if err != nil {
			return err
		}
		s.SetUint32(0, 1)
		if params > 0 {
			if err := s.SetPtr(0, list.ToPtr()); err != nil {
				return err
			}
		}
		return payload.SetContent(s.ToPtr())
	})
}

func toBootstrap(t rpccp.MessageTarget) error {
	t.SetImportedCap(0)
	return nil
}

func hello(q uint32, params int) []byte { return callOf(q, 0, params, toBootstrap) }

func restoreWrong(q uint32) []byte { return callOf(q, 1, 0, toBootstrap) }

func pipelined(q, on uint32, params int) []byte {
	return callOf(q, 0, params, func(t rpccp.MessageTarget) error {
		p, err := t.NewPromisedAnswer()
		p.SetQuestionId(on)
		return err
	})
}

func bootstrap(q uint32) []byte {
	return framed(func(m rpccp.Message) error {
		b, err := m.NewBootstrap()
		b.SetQuestionId(q)
		return err
	})
}

// provide is a message of level 3, which is echoed.
func provide(size int) []byte {
	return framed(func(m rpccp.Message) error {
		p, err := m.NewProvide()
		if err != nil {
			return err
		}
		data, err := capnp.NewData(m.Segment(), make([]byte, size))
		if err != nil {
			return err
		}
		return p.SetRecipient(data.ToPtr())
	})
}

// many are messages behind a bootstrap, 60 KiB of them.
func many(one func(q uint32) []byte) []byte {
	b := bootstrap(0)
	for q := uint32(1); len(b) < 44<<10; q++ {
		b = append(b, one(q)...)
	}
	return b
}

// besiege has so many strangers do it for a while: each sends until it is not heard any more, and comes again.
func (s *attackTarget) besiege(ctx context.Context, a attack, strangers int) {
	var all sync.WaitGroup
	var b bytes.Buffer
	a.say(&b, s)
	said := b.Bytes()
	for range strangers {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := a.at.open(s)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				for err == nil {
					_, err = c.Write(said)
					if err == nil && a.at.once {
						<-ctx.Done()
						break
					}
				}
				stop()
				_ = c.Close()
			}
		})
	}
	all.Wait()
}

// peak is the most that the process has held since it was forgotten.
func peak(t testing.TB, srv *server, forget bool) int64 {
	t.Helper()
	pid := srv.current().cmd.Process.Pid
	if forget {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatal("the process's memory is not told")
	return 0
}

// attackedServer is a server with a budget, and what it holds when idle. The binary is to be one without the race detector, which
// takes memory of its own.
type attackedServer struct {
	*server
	attackTarget
	t      *testing.T
	budget int
	ref    capability.Ref
	idle   int64
}

func newAttackedServer(t *testing.T, budget, size int) *attackedServer {
	stream := filepath.Join(t.TempDir(), "stream")
	b := &attackedServer{t: t, budget: budget}
	b.server = startServer(t, serverConfig{
		Wrap: []string{"env", fmt.Sprintf("GOMEMLIMIT=%d", budget+64<<20)}, // or garbage gathers, as long as there is memory
		Args: []string{"--max-stranger-bytes", strconv.Itoa(budget), "--capnp-listen", "unix:" + stream, "--max-wrong-tries", "1000000"}})
	b.attackTarget = attackTarget{web: b.address(), stream: stream, size: size}
	b.ref = makeSession(t, b.server)
	b.workAsUser()
	b.idle = peak(t, b.server, true)
	return b
}

// workAsUser is somebody with a ref, and all that a batch may hold right behind it.
func (b *attackedServer) workAsUser() {
	w, text := newWriter(b.t, b.ref, b.owner()), strings.Repeat("x", 3<<20)
	w.must(put("message/m", map[string]any{"text": text}), put("message/n", map[string]any{"text": text}))
}

// measureUnder measures what attacks cost, with so many strangers for each, while somebody works.
func (b *attackedServer) measureUnder(name string, all []attack, strangers int, long time.Duration) {
	ctx, cancel := context.WithTimeout(b.t.Context(), long)
	defer cancel()
	var sieges sync.WaitGroup
	for _, a := range all {
		sieges.Go(func() { b.besiege(ctx, a, strangers) })
	}
	b.workAsUser()
	sieges.Wait()
	held := peak(b.t, b.server, false)
	peak(b.t, b.server, true)
	b.t.Logf("%s: %d MiB more than idle", name, (held-b.idle)>>20)
	if most := b.idle + int64(b.budget) + 64<<20; held > most {
		b.t.Errorf("%s: the server held %d MiB, %d when idle, with a budget of %d", name, held>>20, b.idle>>20, b.budget>>20)
	}
}

// Whatever strangers send, the server holds no more than their budget, and others are served.
func TestStrangers(t *testing.T) {
	t.Parallel()
	b := newAttackedServer(t, 16<<20, 4<<20)
	b.measureUnder("all at once", attacks, 2, time.Second)
	b.healthy()
}
