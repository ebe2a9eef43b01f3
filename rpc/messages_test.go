// The messages of a transcript: text to rpc.capnp and back.
//
//	bootstrap q=Q
//	call q=Q to=TARGET METHOD n= text= cap=CAP [yourself] [thirdparty] [oddplace] [nopipelining] [pipelineonly]
//	       [interface=HEX] [noparams] [badtable]
//	return a=Q results n= text= cap=CAP | exception TYPE REASON | canceled | elsewhere | take=Q | thirdparty | odd
//	       [releaseparams] [nofinish] [noparams] [badtable]
//	finish q=Q [keepcaps] [late]
//	resolve p=ID cap=CAP | exception TYPE REASON | odd
//	release id=ID n=N
//	disembargo sender=ID | receiver=ID | accept | odd  to=TARGET
//	abort TYPE REASON; unimplemented MESSAGE; provide, accept, join, save, delete, answer, unknown, nothing, null, raw HEX
//
// TARGET is cap:ID or answer:Q.PATH. CAP is none, hosted:ID, promise:ID, receiver:ID, answer:Q.PATH, vine:ID, or odd.
// odd is a tag that nobody knows, and so is an exception's type=N; noparams leaves the payload out, badtable makes its
// table a text. bad:N in place of a cap writes an interface pointer to entry N of an empty table.

package rpc

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// must carries the first error of a sequence of writes.
type must struct{ err error }

func (m *must) ok(err error) {
	if m.err == nil {
		m.err = err
	}
}

func need[T any](m *must) func(v T, err error) T {
	return func(v T, err error) T { m.ok(err); return v }
}

func buildMessage(a args) ([]byte, error) {
	if a.bare[0] == "raw" {
		return hex.DecodeString(strings.Join(a.bare[1:], ""))
	}
	msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		return nil, err
	}
	if a.bare[0] != "null" {
		root, err := rpccp.NewRootMessage(seg)
		if err != nil {
			return nil, err
		}
		if err := writeMessage(root, a); err != nil {
			return nil, err
		}
	}
	return msg.Marshal()
}

func writeMessage(root rpccp.Message, a args) error {
	var m must
	switch kind := a.bare[0]; kind {
	case "bootstrap":
		need[rpccp.Bootstrap](&m)(root.NewBootstrap()).SetQuestionId(uint32(a.num("q")))
	case "call":
		call := need[rpccp.Call](&m)(root.NewCall())
		call.SetQuestionId(uint32(a.num("q")))
		call.SetInterfaceId(testInterface)
		if i := a.get("interface"); i != "" {
			n, _ := strconv.ParseUint(i, 16, 64)
			call.SetInterfaceId(n)
		}
		id, ok := storyMethods[a.bare[1]]
		if !ok {
			n, _ := strconv.ParseUint(a.bare[1], 10, 16)
			id = uint16(n)
		}
		call.SetMethodId(id)
		if a.has("yourself") {
			call.SendResultsTo().SetYourself()
		}
		if a.has("thirdparty") {
			m.ok(call.SendResultsTo().SetThirdParty(capnp.Ptr{}))
		}
		if a.has("oddplace") {
			capnp.Struct(call).SetUint16(6, 77)
		}
		call.SetNoPromisePipelining(a.has("nopipelining"))
		call.SetOnlyPromisePipeline(a.has("pipelineonly"))
		if to := a.get("to"); to != "" {
			m.ok(writeTestTarget(need[rpccp.MessageTarget](&m)(call.NewTarget()), to))
		}
		if !a.has("noparams") {
			m.ok(writeTestPayload(need[rpccp.Payload](&m)(call.NewParams()), a))
		}
	case "return":
		ret := need[rpccp.Return](&m)(root.NewReturn())
		ret.SetAnswerId(uint32(a.num("a")))
		ret.SetReleaseParamCaps(a.has("releaseparams"))
		ret.SetNoFinishNeeded(a.has("nofinish"))
		switch {
		case a.has("exception"):
			ex := exceptionOf(a.bare[2:])
			if t := a.get("type"); t != "" {
				ex.Type = ExceptionType(a.num("type"))
			}
			m.ok(writeException(need[rpccp.Exception](&m)(ret.NewException()), ex, maxReasonBytes))
		case a.has("odd"):
			capnp.Struct(ret).SetUint16(6, 77)
		case a.has("noparams"):
			m.ok(capnp.Struct(ret).SetPtr(0, capnp.Ptr{})) // results that are not there
		case a.has("canceled"):
			ret.SetCanceled()
		case a.has("elsewhere"):
			ret.SetResultsSentElsewhere()
		case a.get("take") != "":
			ret.SetTakeFromOtherQuestion(uint32(a.num("take")))
		case a.has("thirdparty"):
			m.ok(ret.SetAwaitFromThirdParty(capnp.Ptr{}))
		case a.has("bootcap"): // a bare capability, as of a bootstrap
			p := need[rpccp.Payload](&m)(ret.NewResults())
			m.ok(p.SetContent(capnp.NewInterface(p.Segment(), 0).ToPtr()))
			list := need[rpccp.CapDescriptor_List](&m)(p.NewCapTable(1))
			m.ok(writeTestCap(list.At(0), a.get("cap")))
		default:
			m.ok(writeTestPayload(need[rpccp.Payload](&m)(ret.NewResults()), a))
		}
	case "finish":
		f := need[rpccp.Finish](&m)(root.NewFinish())
		f.SetQuestionId(uint32(a.num("q")))
		f.SetReleaseResultCaps(!a.has("keepcaps"))
		f.SetRequireEarlyCancellationWorkaround(a.has("late"))
	case "resolve":
		r := need[rpccp.Resolve](&m)(root.NewResolve())
		r.SetPromiseId(uint32(a.num("p")))
		if a.has("exception") {
			m.ok(writeException(need[rpccp.Exception](&m)(r.NewException()), exceptionOf(a.bare[2:]), maxReasonBytes))
		} else if a.has("odd") {
			capnp.Struct(r).SetUint16(4, 77)
		} else {
			m.ok(writeTestCap(need[rpccp.CapDescriptor](&m)(r.NewCap()), a.get("cap")))
		}
	case "release":
		r := need[rpccp.Release](&m)(root.NewRelease())
		r.SetId(uint32(a.num("id")))
		r.SetReferenceCount(uint32(a.num("n")))
	case "disembargo":
		d := need[rpccp.Disembargo](&m)(root.NewDisembargo())
		if to := a.get("to"); to != "" {
			m.ok(writeTestTarget(need[rpccp.MessageTarget](&m)(d.NewTarget()), to))
		}
		switch {
		case a.get("sender") != "":
			d.Context().SetSenderLoopback(uint32(a.num("sender")))
		case a.get("receiver") != "":
			d.Context().SetReceiverLoopback(uint32(a.num("receiver")))
		case a.has("odd"):
			capnp.Struct(d).SetUint16(4, 77)
		default:
			m.ok(d.Context().SetAccept([]byte("accept")))
		}
	case "abort":
		m.ok(writeException(need[rpccp.Exception](&m)(root.NewAbort()), exceptionOf(a.bare[1:]), maxReasonBytes))
	case "unimplemented":
		m.ok(writeMessage(need[rpccp.Message](&m)(root.NewUnimplemented()), args{a.bare[1:], a.named}))
	case "provide":
		need[rpccp.Provide](&m)(root.NewProvide()).SetQuestionId(uint32(a.num("q")))
	case "accept":
		need[rpccp.Accept](&m)(root.NewAccept()).SetQuestionId(uint32(a.num("q")))
	case "join":
		need[rpccp.Join](&m)(root.NewJoin()).SetQuestionId(uint32(a.num("q")))
	case "answer":
		need[rpccp.ThirdPartyAnswer](&m)(root.NewThirdPartyAnswer()).SetAnswerId(uint32(a.num("a")))
	case "save":
		m.ok(root.SetObsoleteSave(capnp.Ptr{}))
	case "delete":
		m.ok(root.SetObsoleteDelete(capnp.Ptr{}))
	case "nothing":
	case "unknown":
		capnp.Struct(root).SetUint16(0, 99)
	default:
		return fmt.Errorf("message %s?", kind)
	}
	return m.err
}

func writeTestPayload(p rpccp.Payload, a args) error {
	s, err := capnp.NewStruct(p.Segment(), testSize)
	if err != nil {
		return err
	}
	if err := p.SetContent(s.ToPtr()); err != nil {
		return err
	}
	s.SetUint64(0, a.num("n"))
	if err := s.SetText(0, a.get("text")); err != nil {
		return err
	}
	if a.has("badtable") {
		text, err := capnp.NewText(p.Segment(), "no table")
		if err != nil {
			return err
		}
		return capnp.Struct(p).SetPtr(1, text.ToPtr())
	}
	cap := a.get("cap")
	if cap == "" {
		return nil
	}
	if n, ok := strings.CutPrefix(cap, "bad:"); ok {
		i, _ := strconv.ParseUint(n, 10, 32)
		return s.SetPtr(1, capnp.NewInterface(s.Segment(), capnp.CapabilityID(i)).ToPtr())
	}
	if err := s.SetPtr(1, capnp.NewInterface(s.Segment(), 0).ToPtr()); err != nil {
		return err
	}
	caps := strings.Split(cap, ",")
	list, err := p.NewCapTable(int32(len(caps)))
	if err != nil {
		return err
	}
	for i, c := range caps {
		if err := writeTestCap(list.At(i), c); err != nil {
			return err
		}
	}
	return nil
}

func writeTestCap(d rpccp.CapDescriptor, s string) error {
	kind, rest, _ := strings.Cut(s, ":")
	n, _ := strconv.ParseUint(rest, 10, 32)
	switch kind {
	case "none":
		d.SetNone()
	case "hosted":
		d.SetSenderHosted(uint32(n))
	case "promise":
		d.SetSenderPromise(uint32(n))
	case "receiver":
		d.SetReceiverHosted(uint32(n))
	case "answer":
		pa, err := d.NewReceiverAnswer()
		if err != nil {
			return err
		}
		return writeTestAnswer(pa, rest)
	case "vine":
		tp, err := d.NewThirdPartyHosted()
		if err != nil {
			return err
		}
		tp.SetVineId(uint32(n))
	case "odd":
		capnp.Struct(d).SetUint16(0, 77)
	default:
		return fmt.Errorf("cap %s?", s)
	}
	return nil
}

func writeTestTarget(t rpccp.MessageTarget, s string) error {
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "cap":
		n, _ := strconv.ParseUint(rest, 10, 32)
		t.SetImportedCap(uint32(n))
		return nil
	case "answer":
		pa, err := t.NewPromisedAnswer()
		if err != nil {
			return err
		}
		return writeTestAnswer(pa, rest)
	case "odd":
		capnp.Struct(t).SetUint16(4, 77)
		return nil
	}
	return fmt.Errorf("target %s?", s)
}

func writeTestAnswer(pa rpccp.PromisedAnswer, s string) error {
	if strings.HasSuffix(s, ".odd") {
		ops, err := pa.NewTransform(1)
		if err != nil {
			return err
		}
		capnp.Struct(ops.At(0)).SetUint16(0, 77)
		s = strings.TrimSuffix(s, ".odd")
	}
	if base, times, ok := strings.Cut(s, "*"); ok { // a path of n steps
		n, _ := strconv.Atoi(times)
		s = base + strings.Repeat(".0", n)
	}
	q, path, err := parsePath(s)
	if err != nil {
		return err
	}
	n, _ := strconv.ParseUint(q, 10, 32)
	pa.SetQuestionId(uint32(n))
	if len(path) == 0 {
		return nil
	}
	ops, err := pa.NewTransform(int32(len(path)))
	if err != nil {
		return err
	}
	for i, f := range path {
		ops.At(i).SetGetPointerField(f)
	}
	return nil
}

// formatMessage writes a message of ours as a transcript shows it.
func formatMessage(m rpccp.Message) string {
	var e must
	var b strings.Builder
	b.WriteString(m.Which().String())
	switch m.Which() {
	case rpccp.Message_Which_bootstrap:
		fmt.Fprintf(&b, " q=%d", need[rpccp.Bootstrap](&e)(m.Bootstrap()).QuestionId())
	case rpccp.Message_Which_call:
		call := need[rpccp.Call](&e)(m.Call())
		fmt.Fprintf(&b, " q=%d to=%s", call.QuestionId(), formatTarget(need[rpccp.MessageTarget](&e)(call.Target())))
		name := fmt.Sprint(call.MethodId())
		for n, id := range storyMethods {
			if id == call.MethodId() {
				name = n
			}
		}
		b.WriteString(" " + name + formatPayload(need[rpccp.Payload](&e)(call.Params())))
	case rpccp.Message_Which_return:
		ret := need[rpccp.Return](&e)(m.Return())
		fmt.Fprintf(&b, " a=%d %s", ret.AnswerId(), ret.Which())
		if ret.ReleaseParamCaps() {
			b.WriteString(" releaseparams")
		}
		if ret.NoFinishNeeded() {
			b.WriteString(" nofinish")
		}
		switch ret.Which() {
		case rpccp.Return_Which_results:
			b.WriteString(formatPayload(need[rpccp.Payload](&e)(ret.Results())))
		case rpccp.Return_Which_exception:
			b.WriteString(formatException(need[rpccp.Exception](&e)(ret.Exception())))
		}
	case rpccp.Message_Which_finish:
		f := need[rpccp.Finish](&e)(m.Finish())
		fmt.Fprintf(&b, " q=%d", f.QuestionId())
		if !f.ReleaseResultCaps() {
			b.WriteString(" keepcaps")
		}
	case rpccp.Message_Which_resolve:
		r := need[rpccp.Resolve](&e)(m.Resolve())
		fmt.Fprintf(&b, " p=%d", r.PromiseId())
		if r.Which() == rpccp.Resolve_Which_cap {
			b.WriteString(" cap=" + formatCap(need[rpccp.CapDescriptor](&e)(r.Cap())))
		} else if r.Which() == rpccp.Resolve_Which_exception {
			b.WriteString(" exception" + formatException(need[rpccp.Exception](&e)(r.Exception())))
		}
	case rpccp.Message_Which_release:
		r := need[rpccp.Release](&e)(m.Release())
		fmt.Fprintf(&b, " id=%d n=%d", r.Id(), r.ReferenceCount())
	case rpccp.Message_Which_disembargo:
		d := need[rpccp.Disembargo](&e)(m.Disembargo())
		switch d.Context().Which() {
		case rpccp.Disembargo_context_Which_senderLoopback:
			fmt.Fprintf(&b, " sender=%d", d.Context().SenderLoopback())
		case rpccp.Disembargo_context_Which_receiverLoopback:
			fmt.Fprintf(&b, " receiver=%d", d.Context().ReceiverLoopback())
		}
		b.WriteString(" to=" + formatTarget(need[rpccp.MessageTarget](&e)(d.Target())))
	case rpccp.Message_Which_abort:
		b.WriteString(formatException(need[rpccp.Exception](&e)(m.Abort())))
	case rpccp.Message_Which_unimplemented:
		inner := need[rpccp.Message](&e)(m.Unimplemented())
		b.WriteString(" " + inner.Which().String())
	}
	if e.err != nil {
		b.WriteString(" UNREADABLE: " + e.err.Error())
	}
	return b.String()
}

func formatPayload(p rpccp.Payload) string {
	var b strings.Builder
	content, err := p.Content()
	if err != nil {
		return " UNREADABLE"
	}
	if s := content.Struct(); s.IsValid() && s.Size().DataSize > 0 {
		fmt.Fprintf(&b, " n=%d", s.Uint64(0))
		if text := textOf(s, 0); text != "" {
			fmt.Fprintf(&b, " text=%q", text)
		}
	}
	list, err := p.CapTable()
	if err != nil {
		return " UNREADABLE"
	}
	for i := range list.Len() {
		b.WriteString(" cap=" + formatCap(list.At(i)))
	}
	return b.String()
}

func formatCap(d rpccp.CapDescriptor) string {
	switch d.Which() {
	case rpccp.CapDescriptor_Which_senderHosted:
		return fmt.Sprintf("hosted:%d", d.SenderHosted())
	case rpccp.CapDescriptor_Which_senderPromise:
		return fmt.Sprintf("promise:%d", d.SenderPromise())
	case rpccp.CapDescriptor_Which_receiverHosted:
		return fmt.Sprintf("receiver:%d", d.ReceiverHosted())
	case rpccp.CapDescriptor_Which_receiverAnswer:
		pa, err := d.ReceiverAnswer()
		if err != nil {
			return "UNREADABLE"
		}
		return formatAnswer(pa)
	}
	return d.Which().String()
}

func formatTarget(t rpccp.MessageTarget) string {
	if t.Which() == rpccp.MessageTarget_Which_importedCap {
		return fmt.Sprintf("cap:%d", t.ImportedCap())
	}
	if t.Which() != rpccp.MessageTarget_Which_promisedAnswer {
		return "odd"
	}
	pa, err := t.PromisedAnswer()
	if err != nil {
		return "UNREADABLE"
	}
	return formatAnswer(pa)
}

func formatAnswer(pa rpccp.PromisedAnswer) string {
	s := fmt.Sprintf("answer:%d", pa.QuestionId())
	ops, err := pa.Transform()
	if err != nil {
		return "UNREADABLE"
	}
	for i := range min(ops.Len(), 100) {
		if ops.At(i).Which() != rpccp.PromisedAnswer_Op_Which_getPointerField {
			s += ".odd"
			continue
		}
		s += fmt.Sprintf(".%d", ops.At(i).GetPointerField())
	}
	return s
}

func formatException(e rpccp.Exception) string {
	ex := readException(e)
	return " " + ex.Type.String() + " " + strconv.Quote(ex.Reason)
}
