// Batches of an outbox, the same as over the other protocols, so that a batch repeated over
// another protocol is a duplicate.
//
// An op's digest covers the names and texts of its arguments, in order. An argument's value is
// its text in the body, byte for byte; a client that must preserve a text exactly, with white
// space around it for instance, sends it as a string.

package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// sentBatch is a decoded batch and its sender.
type sentBatch struct {
	batch       ledger.Batch
	outbox      string
	secret      []byte
	incarnation uint64
	with        []string // texts of refs
	given       bool     // it has a member of a batch
}

// Bounds of lists, above the ledger's own: a violation by an honest client is recorded by the
// ledger, with the reason.
const (
	maxListLen    = 2000
	maxBatchElems = 500_000 // arguments, and ops depended on, of a request: a short text decodes to a much larger value
	maxWith       = 16      // each is redeemed
)

// listed counts what the batches of a request list.
type listed struct{ ops, elems int }

// sender returns the members that say which outbox sends.
func (s *sentBatch) sender() []member {
	return []member{text("outbox", &s.outbox), bytes32("secret", &s.secret), number("incarnation", &s.incarnation)}
}

// checkSender returns why the sender at a path cannot be one.
func (s *sentBatch) checkSender(at *bodyPath) *fault.Error {
	if s.secret == nil {
		return fault.Malformed.With("%s is missing: the outbox's secret, 32 bytes as 43 characters of base64url", &bodyPath{parent: at, name: "secret"})
	}
	return nil
}

// parseBatch parses a batch and its sender, without validating them.
func parseBatch(at *bodyPath, v gjson.Result, to *sentBatch) *fault.Error {
	refused := parseObject(at, v, slices.Concat(to.sender(), to.members(&listed{}), to.forkSources())...)
	if refused == nil {
		refused = to.checkSender(at)
	}
	return refused
}

// members returns the members of a batch without its sender.
func (s *sentBatch) members(n *listed) []member {
	b := &s.batch
	return []member{text("batch_id", &b.BatchID), number("acked_through", &b.AckedThrough), boolean("atomic", &b.Atomic),
		{name: "ops", parse: func(at *bodyPath, v gjson.Result) *fault.Error {
			return parseArray(at, v, ledger.MaxFrameOps, func(at *bodyPath, v gjson.Result) *fault.Error {
				if n.ops++; n.ops > ledger.MaxFrameOps {
					return fault.TooLarge.With("up to %s there are more than %d ops, which are never accepted: send fewer batches at once", at, ledger.MaxFrameOps)
				}
				b.Ops = append(b.Ops, ledger.Intent{})
				op := &b.Ops[len(b.Ops)-1]
				refused := parseOp(at, v, op)
				if n.elems += len(op.Args) + len(op.DependsOn); refused == nil && n.elems > maxBatchElems {
					refused = fault.TooLarge.With("up to %s there are more than %d arguments and depends_on, which are never accepted: send smaller batches", at, maxBatchElems)
				}
				return refused
			})
		}}}
}

// forkSources returns the member that a batch alone has beside its members: no op but the first of a
// session names others.
func (s *sentBatch) forkSources() []member { return []member{texts("with", maxWith, &s.with)} }

// parseBatches parses a batch, or several of one sender (several), without validating them.
func parseBatches(v gjson.Result) (sender sentBatch, list []sentBatch, several bool, refused *fault.Error) {
	var n listed
	alone, batches := sentBatch{}, member{name: "batches", parse: func(at *bodyPath, v gjson.Result) *fault.Error {
		several = true
		return parseArray(at, v, maxListLen, func(at *bodyPath, v gjson.Result) *fault.Error {
			list = append(list, sentBatch{})
			return parseObject(at, v, list[len(list)-1].members(&n)...)
		})
	}}
	members := append(alone.members(&n), alone.forkSources()...)
	for i, m := range members {
		members[i].parse = func(at *bodyPath, v gjson.Result) *fault.Error {
			alone.given = true
			return m.parse(at, v)
		}
	}
	refused = parseObject(nil, v, append(append(sender.sender(), members...), batches)...)
	switch {
	case refused != nil:
	case several && alone.given:
		refused = fault.Malformed.With("beside batches there may be outbox, secret and incarnation only: each of the batches has the rest")
	case several && len(list) == 0:
		refused = fault.Malformed.With("batches is empty")
	default:
		refused = sender.checkSender(nil)
	}
	if !several {
		list = []sentBatch{alone}
	}
	return sender, list, several, refused
}

func parseOp(at *bodyPath, v gjson.Result, to *ledger.Intent) *fault.Error {
	return parseObject(at, v,
		text("op_id", &to.OpID), number("seq", &to.Seq), text("method", &to.Method), texts("depends_on", maxListLen, &to.DependsOn),
		member{name: "expected_cursor", parse: func(at *bodyPath, v gjson.Result) *fault.Error {
			to.Expected.Set = true
			if v.IsObject() {
				return parseOpRef(at, v, &to.Expected.Ref)
			}
			return parseNumber(at, v, &to.Expected.Cursor)
		}},
		member{name: "args", parse: func(at *bodyPath, v gjson.Result) *fault.Error { return parseArgs(at, v, &to.Args) }})
}

// parseArgs parses arguments: an array of {name, value}, {name, json} and {name, ref}, or an
// object of values. Their order is that of the text.
func parseArgs(at *bodyPath, v gjson.Result, to *[]ledger.Arg) (refused *fault.Error) {
	if !v.IsObject() {
		return parseArray(at, v, maxListLen, func(at *bodyPath, v gjson.Result) *fault.Error {
			*to = append(*to, ledger.Arg{})
			return parseArg(at, v, &(*to)[len(*to)-1])
		})
	}
	seen := map[string]bool{}
	v.ForEach(func(key, value gjson.Result) bool {
		switch {
		case seen[key.Str]:
			refused = fault.Malformed.With("%s has %s twice", at, quoted(key.Str))
		case len(seen) == maxListLen:
			refused = fault.TooLarge.With("%s has more than %d members, which are never accepted", at, maxListLen)
		}
		seen[key.Str] = true
		*to = append(*to, ledger.Arg{Name: key.Str, JSON: []byte(value.Raw)})
		return refused == nil
	})
	return refused
}

func parseArg(at *bodyPath, v gjson.Result, to *ledger.Arg) *fault.Error {
	kinds := 0
	refused := parseObject(at, v, text("name", &to.Name),
		member{name: "value", raw: true, parse: func(_ *bodyPath, v gjson.Result) *fault.Error {
			kinds++
			to.JSON = []byte(v.Raw)
			return nil
		}},
		member{name: "json", parse: func(at *bodyPath, v gjson.Result) *fault.Error {
			kinds++
			var s string
			refused := parseText(at, v, &s)
			to.JSON = []byte(s)
			return refused
		}},
		member{name: "ref", parse: func(at *bodyPath, v gjson.Result) *fault.Error {
			kinds++
			return parseOpRef(at, v, &to.Ref)
		}})
	if refused == nil && kinds != 1 {
		refused = wantFault(at, "one of value, json and ref")
	}
	return refused
}

// applyBatch serves POST /sessions/{id}/batches.
func applyBatch(q *Request, live *objects.Capability) *fault.Error {
	body, refused := q.ReadBody()
	if refused != nil {
		return refused
	}
	sender, list, several, refused := parseBatches(body)
	if refused != nil {
		return refused
	}
	stream, err := live.OpenStream(q.Context(), sender.outbox, sender.secret, sender.incarnation)
	if err != nil {
		return q.ToFault(err)
	}
	if !several {
		return q.apply(stream, &list[0])
	}
	return q.applyAll(stream, list)
}

// acknowledge serves POST /sessions/{id}/acknowledge.
func acknowledge(q *Request, live *objects.Capability) *fault.Error {
	body, refused := q.ReadBody()
	if refused != nil {
		return refused
	}
	var s sentBatch
	through := &s.batch.AckedThrough
	refused = parseObject(nil, body, append(s.sender(), number("acked_through", through))...)
	if refused == nil {
		refused = s.checkSender(nil)
	}
	if refused == nil && *through == 0 {
		refused = fault.Malformed.With("acked_through is the seq of the last op whose outcome is stored, from 1 on")
	}
	if refused != nil {
		return refused
	}
	stream, err := live.OpenStream(q.Context(), s.outbox, s.secret, s.incarnation)
	if err == nil {
		err = stream.Acknowledge(q.Context(), *through)
	}
	if err != nil {
		return q.ToFault(err)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(map[string]any{"last_seq": stream.LastSeq, "acked_through": max(stream.AckedThrough, *through)}))
	return nil
}

// apply sends a batch to its stream and answers with the outcomes.
func (q *Request) apply(stream *objects.Stream, s *sentBatch) *fault.Error {
	var with []*objects.Capability
	for _, text := range s.with {
		live, refused := q.restoreText(text)
		if refused != nil {
			return refused
		}
		with = append(with, live)
	}
	a, err := stream.Apply(q.Context(), s.batch, with...)
	if err != nil {
		return q.ToFault(err)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, encodeAck(&a))
	return nil
}

// applyAll sends batches to their stream and answers with the outcomes of each, or why it was
// refused. If all were, that is the first's refusal.
func (q *Request) applyAll(stream *objects.Stream, list []sentBatch) *fault.Error {
	batches := make([]ledger.Batch, len(list))
	for i := range list {
		batches[i] = list[i].batch
	}
	answers, err := stream.ApplyAll(q.Context(), batches...)
	if err != nil {
		return q.ToFault(err)
	}
	recorded, shown := false, make([][]byte, len(answers))
	for i := range answers {
		if f := answers[i].Err; f != nil {
			shown[i] = httpkit.JSON(map[string]any{"error": newErrorJSON(f)})
		} else {
			recorded, shown[i] = true, encodeAck(&answers[i])
		}
	}
	if !recorded {
		return answers[0].Err
	}
	for i := range answers {
		if f := answers[i].Err; f != nil {
			q.api.cfg.Server.Refused(nil, f)
		}
	}
	httpkit.WriteJSON(q.W, http.StatusOK, fmt.Appendf(nil, `{"answers":[%s]}`, bytes.Join(shown, []byte{','})))
	return nil
}

// outcomeJSON is an op's recorded outcome. Its result is a separate member.
type outcomeJSON struct {
	OpID      string     `json:"op_id"`
	Status    string     `json:"status"`
	Duplicate bool       `json:"duplicate"`
	Cursor    uint64     `json:"cursor,omitempty"`
	Cause     string     `json:"cause,omitempty"`
	Error     *errorJSON `json:"error,omitempty"`
}

// encodeAck returns an ack as JSON text.
func encodeAck(a *decide.Answer) []byte {
	applied, duplicates, rejected := a.Counts()
	b := httpkit.JSON(struct {
		Cursor     uint64 `json:"cursor"`
		Applied    int    `json:"applied"`
		Duplicates int    `json:"duplicates"`
		Rejected   int    `json:"rejected"`
	}{a.Cursor, applied, duplicates, rejected})
	outcomes := []byte{'['}
	for i := range a.Outcomes {
		if i > 0 {
			outcomes = append(outcomes, ',')
		}
		outcomes = append(outcomes, encodeOutcome(&a.Outcomes[i], a.Duplicate)...)
	}
	return addMember(b, "outcomes", append(outcomes, ']'))
}

func encodeOutcome(o *ledger.Outcome, duplicate bool) []byte {
	shown := outcomeJSON{OpID: o.OpID, Status: o.Status.String(), Duplicate: duplicate, Cursor: o.Cursor, Cause: o.Cause}
	if o.Status != ledger.Applied {
		shown.Error = newErrorJSON(&fault.Error{Code: o.Reason, Message: o.Message, At: o.At})
	}
	var result []byte
	if len(o.Result) > 0 {
		result = o.Result
	}
	return addMember(httpkit.JSON(shown), "result", result)
}
