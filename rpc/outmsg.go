// outMsg: an rpc.capnp message of ours under construction, in pooled memory.

package rpc

import (
	"math"
	"strings"
	"sync"
	"unicode/utf8"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// outMsg is a message to be sent, or one that stays in the vat. Its holder may free it once, when nothing points
// into it any more; a message that was shown to others beyond a place function is left to the garbage collector.
type outMsg struct {
	msg  capnp.Message
	root rpccp.Message  // how it was written, or
	seg  *capnp.Segment // where the template of a plain one was filled in
	caps CapTable       // what place has put in; taken before the message is freed
}

var outMsgs = sync.Pool{New: func() any {
	m := new(outMsg)
	m.msg.TraverseLimit = math.MaxInt64 // what we wrote we may read
	return m
}}

// emptyMsg gives an empty message and its segment.
func emptyMsg() (*outMsg, *capnp.Segment, error) {
	m := outMsgs.Get().(*outMsg)
	m.msg.Arena = capnp.SingleSegment(nil)
	seg, err := m.msg.Segment(0)
	return m, seg, err
}

// newOutMsg gives an empty message with its root set.
func newOutMsg() (*outMsg, error) {
	m, seg, err := emptyMsg()
	if err != nil {
		return nil, err
	}
	m.root, err = rpccp.NewRootMessage(seg)
	return m, err
}

// free gives the memory back. Nothing may point into the message any more.
func (m *outMsg) free() {
	if m == nil {
		return
	}
	m.root, m.seg, m.caps = rpccp.Message{}, nil, CapTable{}
	if poisonFreed {
		poisonMessage(&m.msg)
		return
	}
	if m.msg.CapTable().Len() > 0 { // not for Mooring's programs, but they have it at hand
		m.msg.CapTable().Reset()
	}
	// A Message.Reset would do, but write all of it anew; nothing else in it is of the message that was.
	m.msg.Arena.Release()
	m.msg.Arena = nil
	outMsgs.Put(m)
}

// takeCaps gives the capabilities that place has put in, for whoever asks to let go of.
func (m *outMsg) takeCaps() CapTable {
	if m == nil {
		return CapTable{}
	}
	caps := m.caps
	m.caps = CapTable{}
	return caps
}

// newCall is a message with a call whose parameters place has filled in. If place fails, or panics, nothing is left of it.
func newCall(m Method, sz capnp.ObjectSize, place func(capnp.Struct, *CapTable) error) (*outMsg, error) {
	out, params, err := callTemplate.newContent(sz)
	if err != nil {
		return nil, err
	}
	out.setMethod(m)
	if place == nil {
		return out, nil
	}
	placed := false
	defer func() {
		if !placed {
			caps := out.takeCaps()
			caps.release(nil)
			out.free()
		}
	}()
	if err := place(params, &out.caps); err != nil {
		return nil, err
	}
	placed = true
	return out, nil
}

// envelope is the message as the generated code has it.
func (m *outMsg) envelope() (rpccp.Message, error) {
	if m.root.IsValid() {
		return m.root, nil
	}
	return rpccp.ReadRootMessage(&m.msg)
}

// params finds the parameters in a message with a call of ours.
func (m *outMsg) params() (rpccp.Call, rpccp.Payload, error) {
	root, err := m.envelope()
	if err != nil {
		return rpccp.Call{}, rpccp.Payload{}, err
	}
	call, err := root.Call()
	if err != nil {
		return rpccp.Call{}, rpccp.Payload{}, err
	}
	payload, err := call.Params()
	return call, payload, err
}

// results finds the results in a message with a return of ours.
func (m *outMsg) results() (rpccp.Return, rpccp.Payload, error) {
	root, err := m.envelope()
	if err != nil {
		return rpccp.Return{}, rpccp.Payload{}, err
	}
	ret, err := root.Return()
	if err != nil {
		return rpccp.Return{}, rpccp.Payload{}, err
	}
	payload, err := ret.Results()
	return ret, payload, err
}

// newReturn makes a message of m that is a return, by way of the generated code.
func newReturn(m rpccp.Message) (rpccp.Return, error) {
	ret, err := m.NewReturn()
	if err == nil {
		ret.SetReleaseParamCaps(false)
	}
	return ret, err
}

// newResults begins a return with results, likewise.
func (m *outMsg) newResults() (rpccp.Payload, error) {
	ret, err := newReturn(m.root)
	if err != nil {
		return rpccp.Payload{}, err
	}
	return ret.NewResults()
}

// newBootstrapResults is a message with a return that carries one capability and nothing around it.
func newBootstrapResults() (*outMsg, error) {
	out, err := newOutMsg()
	if err != nil {
		return nil, err
	}
	payload, err := out.newResults()
	if err != nil {
		return nil, err
	}
	return out, payload.SetContent(capnp.NewInterface(payload.Segment(), 0).ToPtr())
}

// maxReasonBytes bounds what is said and kept of a reason.
const maxReasonBytes = 4096

// writeException writes an exception that fits into a message.
func (co *core) writeException(e rpccp.Exception, ex *Exception) error {
	return writeException(e, ex, co.maxReason())
}

// maxReason is how long a reason may be for its exception to fit into SendBytes: what is around it takes less than 100.
func (co *core) maxReason() int { return min(maxReasonBytes, co.limits.SendBytes/3) }

func writeException(e rpccp.Exception, ex *Exception, most int) error {
	e.SetType(rpccp.Exception_Type(ex.Type))
	return e.SetReason(clip(ex.Reason, most))
}

func readException(e rpccp.Exception) *Exception {
	reason, err := e.ReasonBytes()
	if err != nil {
		reason = []byte("an exception that cannot be read")
	}
	t := ExceptionType(e.Type())
	if t > Unimplemented {
		t = Failed
	}
	text := strings.ToValidUTF8(string(reason[:min(len(reason), maxReasonBytes+utf8.UTFMax)]), "?")
	return &Exception{Type: t, Reason: clip(text, maxReasonBytes), Remote: true}
}

// clip shortens s to n bytes, between two characters, marking that it did.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := n - len("...")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// envelopeBytes is what the envelope of a message with so many capabilities may take.
func envelopeBytes(caps int) int { return 256 + (1+caps)*(16+transformBytes) }

// transformBytes is what a pipeline's path may take in a message.
const transformBytes = 32 + 8*maxHops

// newEnvelope gives a copied message a new root, behind all that was copied. The old one is a peer's and not to be
// written to: its parts may lie one on the other, so that what is written to one changes another.
func (m *outMsg) newEnvelope() error {
	seg, err := m.msg.Segment(0)
	if err != nil {
		return err
	}
	root, err := capnp.NewStruct(seg, capnp.ObjectSize{DataSize: 8, PointerCount: 1})
	if err != nil {
		return err
	}
	m.root = rpccp.Message(root)
	return m.msg.SetRoot(root.ToPtr())
}

// copyMessage copies a message segment by segment, with room for slack more bytes, so that it can be sent on with
// another envelope while its content, capability indexes included, stays as it is.
func copyMessage(src *capnp.Message, slack int) (*outMsg, error) {
	segs := make([][]byte, src.NumSegments())
	for i := range segs {
		seg, err := src.Segment(capnp.SegmentID(i))
		if err != nil {
			return nil, err
		}
		data := seg.Data()
		room := 0
		if i == len(segs)-1 {
			room = slack
		}
		segs[i] = append(make([]byte, 0, len(data)+room), data...)
	}
	m := new(outMsg)
	m.msg.TraverseLimit = math.MaxInt64
	if _, err := m.msg.Reset(capnp.MultiSegment(segs)); err != nil {
		return nil, err
	}
	root, err := rpccp.ReadRootMessage(&m.msg)
	m.root = root
	return m, err
}
