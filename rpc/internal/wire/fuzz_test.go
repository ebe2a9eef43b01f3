// Fuzzing: bytes as messages, read as frames and as plain messages.

package wire

import (
	"bytes"
	"testing"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// unusual are messages that are not plain: one or more of each kind.
func unusual(t testing.TB) (frames [][]byte) {
	t.Helper()
	call := func(root rpccp.Message, fill func(rpccp.Call, rpccp.MessageTarget, rpccp.Payload) error) error {
		call, err := root.NewCall()
		noError(t, err)
		target, err := call.NewTarget()
		noError(t, err)
		params, err := call.NewParams()
		noError(t, err)
		return fill(call, target, params)
	}
	ret := func(root rpccp.Message) rpccp.Return {
		ret, err := NewReturn(root, 0)
		noError(t, err)
		return ret
	}
	for _, build := range []func(rpccp.Message) error{
		func(m rpccp.Message) error { _, err := m.NewBootstrap(); return err },
		func(m rpccp.Message) error { _, err := m.NewFinish(); return err },
		func(m rpccp.Message) error { _, err := m.NewResolve(); return err },
		func(m rpccp.Message) error { _, err := m.NewRelease(); return err },
		func(m rpccp.Message) error { _, err := m.NewDisembargo(); return err },
		func(m rpccp.Message) error { _, err := m.NewProvide(); return err },
		func(m rpccp.Message) error {
			e, err := m.NewAbort()
			noError(t, err)
			return e.SetReason("why")
		},
		func(m rpccp.Message) error {
			echoed, err := m.NewUnimplemented()
			noError(t, err)
			_, err = echoed.NewCall()
			return err
		},
		func(m rpccp.Message) error {
			return call(m, func(_ rpccp.Call, target rpccp.MessageTarget, _ rpccp.Payload) error {
				on, err := target.NewPromisedAnswer()
				noError(t, err)
				path, err := on.NewTransform(2)
				noError(t, err)
				path.At(1).SetGetPointerField(3)
				return nil
			})
		},
		func(m rpccp.Message) error {
			return call(m, func(call rpccp.Call, _ rpccp.MessageTarget, _ rpccp.Payload) error {
				call.SendResultsTo().SetYourself()
				return nil
			})
		},
		func(m rpccp.Message) error {
			return call(m, func(_ rpccp.Call, _ rpccp.MessageTarget, params rpccp.Payload) error {
				caps, err := params.NewCapTable(1)
				noError(t, err)
				caps.At(0).SetSenderHosted(7)
				return params.SetContent(capnp.NewInterface(params.Segment(), 0).ToPtr())
			})
		},
		func(m rpccp.Message) error { ret(m).SetCanceled(); return nil },
		func(m rpccp.Message) error { ret(m).SetTakeFromOtherQuestion(4); return nil },
		func(m rpccp.Message) error {
			e, err := ret(m).NewException()
			noError(t, err)
			return e.SetReason("why")
		},
	} {
		out := new(Out)
		root, err := out.Init()
		noError(t, err)
		noError(t, build(root))
		frames = append(frames, frameOf(t, out))
	}
	msg, seg, err := capnp.NewMessage(capnp.MultiSegment(nil))
	noError(t, err)
	root, err := rpccp.NewRootMessage(seg)
	noError(t, err)
	results, err := ret(root).NewResults()
	noError(t, err)
	text, err := capnp.NewText(seg, string(make([]byte, 8<<10)))
	noError(t, err)
	noError(t, results.SetContent(text.ToPtr()))
	if msg.NumSegments() < 2 {
		t.Fatal("the message is in one segment")
	}
	frame, err := framing.Append(nil, msg)
	noError(t, err)
	return append(frames, frame)
}

// FuzzDecode feeds bytes to the frame decoder and reads the message it finds.
func FuzzDecode(f *testing.F) {
	for _, m := range append(append(unusual(f), plainFrames(f)...), wider(f)) {
		f.Add(m)
	}
	lim := limits(16, 256<<10)
	lim.MessageBytes, lim.Segments = 64<<10, 16
	f.Fuzz(func(t *testing.T, data []byte) {
		for rest := data; len(rest) > 0; {
			frame, next, err := framing.Split(rest, lim.Limits)
			if err != nil {
				return
			}
			in, err := parseFrame(frame, lim)
			if err == nil {
				if m, err := in.Root(); err == nil {
					_ = m.Which()
				}
				again, err := framing.Append(nil, &in.msg)
				if err != nil || len(again) != len(frame) {
					t.Fatalf("framed again: %d bytes of %d, %v", len(again), len(frame), err)
				}
			}
			rest = next
		}
	})
}

// FuzzPlain holds what is read of a plain message without the generated code to what the generated code reads in it.
func FuzzPlain(f *testing.F) {
	for _, m := range append(append(unusual(f), plainFrames(f)...), wider(f)) {
		f.Add(m, uint8(64), uint16(1<<15))
	}
	f.Fuzz(func(t *testing.T, frame []byte, nesting uint8, traversal uint16) {
		lim := limits(int(nesting), int(traversal))
		lim.MessageBytes = 64 << 10
		checkPlain(t, bytes.Clone(frame), lim)
	})
}
