// The client's decoders take anything: what a server writes into its answers and
// callbacks is its own affair, and no shape of them may do more than be refused.

package client

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/client/internal/serverconn"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// answers are messages as servers send them, of every kind that is decoded.
func answers(f *testing.F) (raws [][]byte) {
	add := func(size capnp.ObjectSize, write func(s capnp.Struct) error) {
		msg, seg := capnp.NewSingleSegmentMessage(nil)
		s, err := capnp.NewRootStruct(seg, size)
		if err == nil {
			err = write(s)
		}
		if err != nil {
			f.Fatal(err)
		}
		raw, err := msg.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		raws = append(raws, raw)
	}
	add(structSize(8, 8), func(capnp.Struct) error { return nil })
	add(structSize(1, 1), func(s capnp.Struct) error { // a page of events, and a subscription's
		list, err := wire.Session_events_Results(s).NewEvents(2)
		if err != nil {
			return err
		}
		e := list.At(0)
		e.SetCursor(7)
		e.SetSchema(1)
		for _, err := range []error{e.SetMethod("put"), e.SetKey("session"), e.SetPayload(`{"a":1}`), e.SetOp("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
			e.SetActor("owner"), e.SetHash(make([]byte, 32)), e.SetSum(make([]byte, 32))} {
			if err != nil {
				return err
			}
		}
		list.At(1).SetHidden(true)
		list.At(1).SetCursor(9)
		return nil
	})
	add(structSize(2, 2), func(s capnp.Struct) error { // a piece of a snapshot
		p := wire.EventSink_state_Params(s)
		entries, err := p.NewEntries(1)
		if err != nil {
			return err
		}
		if err := entries.At(0).SetKey("message/m"); err != nil {
			return err
		}
		if err := entries.At(0).SetPayload(`{"role":"user"}`); err != nil {
			return err
		}
		turns, err := p.NewTurns(1)
		if err != nil {
			return err
		}
		turns.At(0).SetStatus(1)
		p.SetLast(true)
		return turns.At(0).SetMessage_("m")
	})
	add(structSize(1, 1), func(s capnp.Struct) error { // the end of a subscription, and other refusals
		r, err := wire.EventSink_ended_Params(s).NewRefusal()
		if err != nil {
			return err
		}
		r.SetCode(uint16(fault.Revoked))
		r.SetAt(12)
		return r.SetMessage_("revoked")
	})
	add(structSize(1, 2), func(s capnp.Struct) error { // a description
		r := wire.Session_describe_Results(s)
		info, err := r.NewInfo()
		if err != nil {
			return err
		}
		info.SetCursor(5)
		if err := info.SetTitle("title"); err != nil {
			return err
		}
		if err := info.SetHead(make([]byte, 32)); err != nil {
			return err
		}
		grant, err := r.NewGrant()
		if err != nil {
			return err
		}
		return writeGrant(grant)
	})
	add(structSize(1, 1), func(s capnp.Struct) error { // a list of sessions
		list, err := wire.Space_list_Results(s).NewSessions(1)
		if err != nil {
			return err
		}
		return list.At(0).SetId("ses_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	})
	add(structSize(1, 1), func(s capnp.Struct) error { // a tree of refs
		list, err := wire.Session_refs_Results(s).NewRefs(1)
		if err != nil {
			return err
		}
		grant, err := list.At(0).NewGrant()
		if err != nil {
			return err
		}
		if err := list.At(0).SetParent("x"); err != nil {
			return err
		}
		return writeGrant(grant)
	})
	add(structSize(1, 1), func(s capnp.Struct) error { // an audit
		page, err := wire.Session_audit_Results(s).NewPage()
		if err != nil {
			return err
		}
		page.SetSeq(3)
		rows, err := page.NewRows(2)
		if err != nil {
			return err
		}
		rows.At(0).SetAct(1)
		if err := rows.At(0).SetPeer("127.0.0.1"); err != nil {
			return err
		}
		return rows.At(1).SetHash(make([]byte, 32))
	})
	add(structSize(0, 1), func(s capnp.Struct) error { // an ack
		reply, err := wire.Stream_apply_Results(s).NewReply()
		if err != nil {
			return err
		}
		ack, err := reply.NewAck()
		if err != nil {
			return err
		}
		outcomes, err := ack.NewOutcomes(1)
		if err != nil {
			return err
		}
		outcomes.At(0).SetDuplicate(true)
		return outcomes.At(0).SetResult(`{"cursor":1}`)
	})
	return raws
}

func writeGrant(w wire.GrantInfo) error {
	methods, err := w.NewMethods(1)
	if err != nil {
		return err
	}
	w.SetRights(3)
	for _, err := range []error{methods.Set(0, "put"), w.SetActor("owner"), w.SetSeal(make([]byte, 32))} {
		if err != nil {
			return err
		}
	}
	return nil
}

func FuzzDecodeAnswers(f *testing.F) {
	for _, raw := range answers(f) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw = bytes.Clone(raw)
		msg, err := capnp.Unmarshal(raw)
		if err != nil {
			return
		}
		msg.ResetReadLimit(1 << 20)
		root, err := msg.Root()
		if err != nil {
			return
		}
		decoded := decodeAll(t, root.Struct())
		before := fmt.Sprintf("%+v", decoded)
		clear(raw) // nothing decoded refers to the message
		if after := fmt.Sprintf("%+v", decoded); after != before {
			t.Errorf("what was decoded changed with its message: from\n%s\nto\n%s", before, after)
		}
	})
}

// decodeAll has a struct decoded as everything that it may be said to be.
func decodeAll(t *testing.T, s capnp.Struct) (all []any) {
	keep := func(decoded any, err error) {
		if err == nil {
			all = append(all, decoded)
		}
	}
	var page Page
	err := page.read("ses_x", s)
	keep(page, err)
	for _, e := range page.Events {
		if e.Session != "ses_x" || e.Hidden && e.Payload != nil {
			t.Errorf("an event of another session, or a mark with a payload: %+v", e)
		}
	}
	entries, turns, err := decodeState(wire.EventSink_state_Params(s))
	keep(entries, err)
	keep(turns, err)
	var ofSession, ofSpace Description
	err = ofSession.readSession(s)
	keep(ofSession, err)
	err = ofSpace.readSpace(s)
	keep(ofSpace, err)
	if list, err := wire.Space_list_Results(s).Sessions(); err == nil {
		for i := range list.Len() {
			info, err := decodeSessionInfo(list.At(i))
			keep(info, err)
		}
	}
	if list, err := wire.Session_refs_Results(s).Refs(); err == nil {
		for i := range list.Len() {
			info, err := decodeRefInfo(list.At(i))
			keep(info, err)
		}
	}
	if w, err := wire.Session_audit_Results(s).Page(); err == nil {
		audit, err := decodeAuditPage("ses_x", w)
		keep(audit, err)
	}
	if w, err := wire.EventSink_ended_Params(s).Refusal(); err == nil {
		if refusal, err := calls.RefusalOf(w); err == nil && refusal != nil {
			keep(*refusal, nil)
		}
	}
	keep(nil, readShared(s))
	id, _, err := readSaved(s)
	keep(id, err)
	ops := []ledger.Intent{{OpID: ""}}
	outcomes, err := serverconn.DecodeReply(s, ops)
	if err == nil && len(outcomes) != len(ops) {
		t.Errorf("%d outcomes of %d ops", len(outcomes), len(ops))
	}
	keep(outcomes, err)
	if refusal, ok := errors.AsType[*fault.Error](err); ok {
		keep(*refusal, nil)
	}
	return all
}
