// /rpc/share: the API over Cap'n Web, by WebSocket and in batches.

package share

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
	"github.com/mooring-rpc/mooring/internal/writequeue"
)

// probeReply is the reply of probeValue: its argument, as decoded.
type probeReply struct {
	When   string `json:"when"`
	Bytes  []any  `json:"bytes"` // numbers
	Size   int    `json:"size"`
	Nested any    `json:"nested"`
}

// rpcMain returns the object that a visitor calls.
func (s *Service) rpcMain(v *visitor) capnweb.Object {
	var calls writequeue.Queue // of syncShare: calls arrive in order, and may be sent without waiting for answers
	return capnweb.NewMethods(map[string]any{
		"createShare": func(ctx context.Context, external string, initial *[]any) (*opencode.CreateReply, error) {
			memory := s.newMemory(ctx, v.caller)
			defer memory.close()
			var items []json.RawMessage
			var err error
			if initial != nil { // before an object is made of it
				if items, err = memory.encodeItems(*initial); err != nil {
					return nil, s.rejection(ctx, err, opencode.ForCreator)
				}
			}
			got, err := s.create(ctx, v, external)
			if err == nil && initial != nil {
				_, err = s.rpcSync(ctx, v, memory, got.ID, got.Secret, items)
			}
			return got, s.rejection(ctx, err, opencode.ForCreator)
		},
		"syncShare": func(c *capnweb.Call, id, secret string, data []any) {
			turn := calls.Join(id)
			c.Go(func(ctx context.Context) {
				defer turn.Leave()
				select {
				case <-turn.Ready:
				case <-ctx.Done():
				}
				memory := s.newMemory(ctx, v.caller)
				defer memory.close()
				items, err := memory.encodeItems(data)
				var n int
				if err == nil {
					n, err = s.rpcSync(ctx, v, memory, id, secret, items)
				}
				if err != nil {
					c.Fail(s.rejection(ctx, err, opencode.ForWriter))
					return
				}
				c.Return(opencode.SyncReply{Success: true, SyncCount: n})
			})
		},
		"deleteShare": func(ctx context.Context, id, secret string) (opencode.DeleteReply, error) {
			err := s.delete(context.WithoutCancel(ctx), v, id, secret)
			return opencode.DeleteReply{Success: err == nil}, s.rejection(ctx, err, opencode.ForWriter)
		},
		"probeValue": func(in struct {
			When   time.Time `json:"when"`
			Bytes  []byte    `json:"bytes"`
			Nested any       `json:"nested"`
		}) probeReply {
			out := probeReply{When: dateText(in.When), Bytes: make([]any, len(in.Bytes)), Size: len(in.Bytes), Nested: in.Nested}
			for i, b := range in.Bytes {
				out.Bytes[i] = float64(b)
			}
			return out
		},
		"probeCallback": func(ctx context.Context, callback *capnweb.Stub) (any, error) {
			p := callback.Call(ctx, "", "server-called")
			defer p.Release()
			return p.Await(ctx)
		},
	})
}

// rpcSync applies a sync that arrived whole, whose items are charged to memory.
func (s *Service) rpcSync(ctx context.Context, v *visitor, memory *requestMemory, id, secret string, items []json.RawMessage) (int, error) {
	leave, err := s.slots.acquire(ctx, v.caller.Address())
	if err != nil {
		return 0, err
	}
	defer leave()
	writer, err := s.openWriter(ctx, v.caller, id, secret)
	if err != nil {
		return 0, err
	}
	defer writer.close()
	memory.chargeToShare(writer.share.ID)
	return len(items), writer.sync(context.WithoutCancel(ctx), items)
}

// rpcLimits returns the limits of one connection: clients make one call at a time.
func (s *Service) rpcLimits() capnweb.Limits {
	l := capnweb.DefaultLimits()
	message := s.liveConfig.Load().MessageBytes
	l.MessageBytes, l.QueuedBytes, l.CallBytes = message, message, 4*message
	l.Calls, l.Exports, l.Imports = 256, 1024, 1024
	l.HandshakeTimeout, l.IdleTimeout = s.cfg.StallTimeout, 10*time.Minute
	return l
}

// rpcIntake returns the admission control of a visitor's messages. It must be closed.
func (s *Service) rpcIntake(ctx context.Context, v *visitor) *intake.Peer {
	return s.cfg.Server.OpenIntake(v.RemoteAddr, func(have []byte) (string, error) { return s.findRef(ctx, v, have) })
}

// syncPrefix is the beginning of a large message: a caller without a valid secret is refused
// before the message is decoded.
var syncPrefix = regexp.MustCompile(`^\["push",\["pipeline",0,\["syncShare"\],\["([A-Za-z0-9._-]{1,200})","([A-Za-z0-9._-]{1,200})",`)

// findRef returns the budget key of a message whose beginning is have: that of the share it
// syncs, unless the request that opened the connection presented a creator's ref or key.
func (s *Service) findRef(ctx context.Context, v *visitor, have []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.liveConfig.Load().SyncTimeout)
	defer cancel()
	if m := syncPrefix.FindSubmatch(have[:min(len(have), syncbody.BufferBytes)]); m != nil {
		writer, err := s.openWriter(ctx, v.caller, string(m[1]), string(m[2]))
		if err != nil {
			return "", s.rejection(ctx, err, opencode.ForWriter)
		}
		writer.close()
		return budgetKey(string(m[1])), nil
	}
	if v.creator == "" && len(v.Header.Values(shareKeyHeader)) == 0 {
		return "", nil
	}
	by, err := s.creatorRef(ctx, v)
	return by, s.rejection(ctx, err, opencode.ForCreator)
}

func (s *Service) rpcConfig(v *visitor, in *intake.Peer) capnweb.Config {
	return capnweb.Config{Main: s.rpcMain(v), Limits: s.rpcLimits(), Intake: in, Logger: slog.New(warningsOnly{s.cfg.Log.Handler()}), Redact: func(err error) *capnweb.Error {
		wireErr, _ := s.rejection(v.Context(), err, opencode.ForWriter).(*capnweb.Error)
		return wireErr
	}}
}

// warningsOnly is a handler that drops the routine records of every connection.
type warningsOnly struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h warningsOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (h warningsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warningsOnly{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h warningsOnly) WithGroup(name string) slog.Handler {
	return warningsOnly{h.Handler.WithGroup(name)}
}

// serveRPC opens a WebSocket (GET) or answers a batch. Browser origins are checked as for every
// WebSocket of this server; whether the caller may create is checked by create, on the request
// that opened the connection.
func (s *Service) serveRPC(w http.ResponseWriter, v *visitor, _ string) {
	done, err := s.cfg.Server.Admit(v.RemoteAddr)
	if err != nil {
		s.refuse(w, v, err, opencode.ForWriter)
		return
	}
	defer done()
	opts := capnweb.AcceptOptions{OriginPatterns: s.cfg.OriginPatterns, RemoteAddr: v.RemoteAddr}
	if v.Method != http.MethodGet {
		s.serveRPCBatch(w, v, opts)
		return
	}
	t, err := capnweb.Accept(w, v.Request, opts)
	if err != nil {
		return // already answered
	}
	ctx, cancel := context.WithCancel(v.Context()) // calls end with the connection, or when draining took too long
	defer cancel()
	live := &visitor{Request: v.Request, caller: s.cfg.Server.Caller(ctx, v.RemoteAddr), creator: v.creator}
	in := s.rpcIntake(ctx, live)
	defer in.Close()
	conn := capnweb.NewConn(t, s.rpcConfig(live, in))
	go func() {
		select {
		case <-s.cfg.Server.Draining():
			_ = conn.Drain(ctx, "the server is stopping") // the remaining calls end with ctx
		case <-conn.Done():
			cancel()
		}
	}()
	_ = conn.Run(ctx) // it has logged why it ended
}

// serveRPCBatch answers one batch, under its own timeout.
func (s *Service) serveRPCBatch(w http.ResponseWriter, v *visitor, opts capnweb.AcceptOptions) {
	httpkit.SetDeadlines(w, s.cfg.RPCTimeout, s.cfg.StallTimeout)
	leave, err := s.slots.acquire(v.Context(), batchSlotPrefix+v.caller.Address())
	if err != nil {
		s.refuse(w, v, err, opencode.ForWriter)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(v.Context(), s.cfg.RPCTimeout)
	defer cancel()
	in := s.rpcIntake(ctx, v)
	defer in.Close()
	capnweb.ServeBatch(w, v.Request.WithContext(ctx), s.rpcConfig(v, in), opts)
	if ctx.Err() != nil && v.Context().Err() == nil {
		s.refuse(w, v, fault.Unavailable.With("the batch was not answered in time"), opencode.ForWriter)
	}
}

// batchSlotPrefix begins the names of batches' slots: the calls in a batch take their own.
const batchSlotPrefix = "batch "
