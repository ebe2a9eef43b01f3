// mooring session append: commits op lines to the outbox.

package writecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/jsonerr"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
)

// appendMethods are the methods of op lines, with their arguments. Text in brackets is for
// people.
var appendMethods = []struct{ name, must, may string }{
	{"put", "key, payload", "schema_version, expect, claim, sync (true: of opencode's)"},
	{"patch", "key, patch (RFC 7396)", "schema_version, expect, claim"},
	{"add", "key, member, by (a whole number)", "expect, claim"},
	{"remove", "key", "expect, claim, sync (as of put)"},
	{"claim", "key, lease (ms)", "prefix (in place of key: its first free key), request (in place of key), worker"},
	{"release", "key, claim", "request (in place of key)"},
	{"ask", "request (an id), kind", `payload, choices ([{"id","label"}]), message, expires_in (ms)`},
	{"answer", "request", "choice, payload, shown (the digest), claim, state (unknown), reason"},
	{"withdraw", "request", "reason"},
	{"begin", "message, payload", "schema_version"},
	{"appendText", "key (part/MESSAGE/ID), offset (bytes of text so far), text", ""},
	{"finalize", "message, status (completed, failed, aborted)", `payload, schema_version, parts ([{"id","payload"}]), usage, error, completed (Unix ms)`},
	{"share", `rights (["read"])`, "methods, message, from, read_keys, write_keys, ask and answer (kinds of requests), children (rights there), expires_in (ms), expires_at (Unix ms), redemptions, label, actor, seal (a key), public (true: of a page without the secret), ref and hash (made and printed if left out)"},
	{"revoke", "ref (an id)", ""},
	{"bumpEpoch", "", ""},
	{"revert", "to (message/ID or part/MESSAGE/ID)", "cursor (in place of to: the first message after it)"},
	{"unrevert", "", ""},
	{"compact", "upto (message/ID), summary (message/ID)", ""},
	{"purge", "key", ""},
	{"delete", "", ""},
}

// appendTable formats appendMethods for the help.
func appendTable() string {
	const indent, width = 14, 84
	var b strings.Builder
	for _, m := range appendMethods {
		line := fmt.Sprintf("  %-*s", indent-2, m.name)
		text := m.must
		if m.may != "" {
			text += ", …" + strings.ReplaceAll(m.may, ", ", ", …")
		}
		for _, word := range strings.Fields(text) {
			if len([]rune(line))+len([]rune(word)) > width {
				b.WriteString(strings.TrimRight(line, " ") + "\n")
				line = strings.Repeat(" ", indent)
			}
			line += word + " "
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// checkMethod returns, for an unknown method, an error with the known ones.
func checkMethod(l *opLine) error {
	names := make([]string, len(appendMethods))
	for i, m := range appendMethods {
		if names[i] = m.name; m.name == l.Method {
			return nil
		}
	}
	if l.Method == session.MethodCreate || l.Method == session.MethodFork {
		return fault.UnknownMethod.With("line %d: %s makes another session, so it is not an op of this one: mooring session import makes sessions", l.Line, l.Method)
	}
	return fault.UnknownMethod.With("line %d: there is no method %q: use one of %s", l.Line, cli.SanitizeLine(l.Method), strings.Join(names, ", "))
}

var appendHelp = `Append op intents to a session, one JSON object a line, from FILE or standard input (-).
The command returns when they are durable in the outbox, with or without a server; any
later command sends what could not be sent at once. --wait waits for the answers. If a
line is wrong, nothing is committed.

A line has a method, its arguments, and optional fields:

  {"method":"put","key":"message/msg_1","payload":{"role":"user"}}

  method      arguments (… may be left out)
` + appendTable() + `
  keys: session, message/ID, part/MESSAGE/ID, session_diff, model/ID with objects;
  KIND or KIND/ID[/ID…] of your own (todo/1, plan) with any JSON value, patch, add and claim;
  schema/KIND with a JSON Schema, by which later values of KIND must be valid
  expect: the cursor of the key's last change, 0 for none; else the op is a conflict
  claim: the "claim" in the result of the op that claimed the key, while it is claimed;
  release ends another's claim too, under a ref with the right break

  as                 a label by which later lines refer to this op
  refs               {"ARGUMENT":{"op":"LABEL or op id","path":"cursor"}}: the argument
                     is a field of that op's result, filled in by the server
  depends_on         ["LABEL or op id"]: skipped if one of them does not apply
  expected_cursor    a number or {"op","path"}: a conflict if the session's cursor differs
  batch              adjacent lines with the same batch name are committed together;
                     without names all lines are, up to 1000 at a time
  atomic             true: the batch applies as a whole or not at all
  op_id              a ULID of your own; if all lines of a batch have one, appending the
                     batch again gives the first answers and changes nothing`

func sessionAppendCmd(h *home.Folder) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "append REF [FILE or -]",
		Short: "Append op intents (JSONL), durable at once",
		Long:  appendHelp + "\n\n" + home.RefHelp,
		Example: `  mooring session append ses_01J… ops.jsonl --wait
  echo '{"method":"put","key":"message/msg_1","payload":{"role":"user"}}' | mooring session append @helper.ref`,
		Args: cli.ArgCount(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				if err := checkAppendRef(ctx, h, c, args); err != nil {
					return err
				}
				lines, err := opLines(ctx, h, args[1:])
				if err != nil {
					return err
				}
				return appendOps(ctx, h, c, args[0], lines, wait)
			})
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the server has answered every op")
	return cmd
}

// opLines reads FILE, or standard input.
func opLines(ctx context.Context, h *home.Folder, args []string) (lines []opLine, err error) {
	in, closeIn, err := h.Env.Input(ctx, args)
	if err == nil {
		defer closeIn()
		lines, err = readOpLines(&boundedInput{Reader: in})
	}
	if errors.Is(err, cli.ErrStopped) {
		err = fault.Canceled.With("stopped while the op lines were read: nothing was appended")
	}
	return lines, err
}

// checkAppendRef checks REF before standard input is read: it may be the file's name, with REF
// forgotten.
func checkAppendRef(ctx context.Context, h *home.Folder, c *client.Client, args []string) error {
	if h.Arg(ctx, args[0]).Under != "" {
		return nil // there is no need to guess
	}
	ref, id, err := h.Ref(ctx, args[0])
	if err != nil {
		return err
	}
	if id == "" {
		return h.CheckPlaintext(ref)
	}
	_, err = h.SavedRef(ctx, c.Outbox(), id, capability.Append)
	if info, e := os.Stat(id); fault.CodeOf(err) == fault.NotFound && len(args) == 1 && e == nil && !info.IsDir() {
		return fault.NotFound.With("the home folder knows no session %s, but there is a file of that name: REF comes before it, mooring session append REF %s", id, id)
	}
	return err
}

// appendPlan is op lines as batches ready to be committed.
type appendPlan struct {
	session     *client.Session
	labels      map[string]string // label or op id → op id
	batches     []*client.Batch
	last        []int                     // the number of each batch's last line
	mintedRefs  map[string]capability.Ref // op id → the ref that its share mints
	externalOps []namedOp                 // ops referred to and not in these lines
	ownOps      []namedOp                 // ops with ids of their own
}

// namedOp is an op id in a line.
type namedOp struct {
	line  int
	op    string
	batch string // the batch with the op
}

func appendOps(ctx context.Context, h *home.Folder, c *client.Client, arg string, lines []opLine, wait bool) error {
	s, err := h.Session(ctx, c, arg)
	if err != nil {
		return err
	}
	a := &appendPlan{session: s, labels: map[string]string{}, mintedRefs: map[string]capability.Ref{}}
	for _, group := range batchesOf(lines, session.DefaultLimits().Limits) {
		if err := a.add(group); err != nil {
			return err
		}
	}
	if err := a.checkExternalOps(ctx, c); err != nil {
		return err
	}
	var tickets []client.Ticket
	for i, b := range a.batches {
		t, err := b.Commit(ctx)
		if err != nil && i > 0 { // print the durable batches, with the refs minted
			return errors.Join(
				fmt.Errorf("lines 1 to %d are in the outbox; continue with line %d: %w", a.last[i-1], a.last[i-1]+1, err),
				reportAppended(ctx, h, c, a, tickets, false))
		}
		if err != nil {
			return err
		}
		tickets = append(tickets, t)
	}
	return h.ExplainRefUsed(ctx, c, arg, s, capability.Append, reportAppended(ctx, h, c, a, tickets, wait))
}

// checkExternalOps checks, before anything is committed, that ops referred to and not in the
// lines are in the outbox, and that the lines' own op ids are free.
func (a *appendPlan) checkExternalOps(ctx context.Context, c *client.Client) error {
	check := func(names []namedOp, f func(n namedOp, row *outbox.Row) error) error {
		for _, n := range names {
			rows, err := c.Outbox().List(ctx, outbox.Filter{Op: n.op, Limit: 1})
			if err != nil {
				return err
			}
			var row *outbox.Row
			if len(rows) > 0 {
				row = &rows[0]
			}
			if err := f(n, row); err != nil {
				return err
			}
		}
		return nil
	}
	err := check(a.externalOps, func(n namedOp, row *outbox.Row) error {
		if row == nil {
			return fault.BadReference.With("line %d: op %s is not in this outbox: only ops that were appended from here can be referred to", n.line, n.op)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return check(a.ownOps, func(n namedOp, row *outbox.Row) error {
		if row != nil && row.Batch != n.batch {
			return fault.AlreadyExists.With("line %d: op id %s is taken by an earlier append: give each op an id of its own", n.line, n.op)
		}
		return nil
	})
}

// add checks a batch's lines and adds the batch.
func (a *appendPlan) add(group []opLine) error {
	b := a.session.Batch()
	if !slices.ContainsFunc(group, func(l opLine) bool { return l.OpID == "" }) {
		b.SetID(group[0].OpID) // the same lines again are the same batch: nothing is appended twice
	}
	var intents []ledger.Intent
	for i := range group {
		l := &group[i]
		in, err := a.intent(l, outbox.OpID(b.ID(), i))
		if err != nil {
			return err
		}
		in.Atomic = group[0].Atomic
		intents = append(intents, *in)
		p := b.Do(l.Method)
		if l.OpID != "" {
			p.SetID(l.OpID)
			a.ownOps = append(a.ownOps, namedOp{l.Line, l.OpID, b.ID()})
		}
		for _, arg := range in.Args {
			if arg.Ref != nil {
				p.Arg(arg.Name, client.ResultRef(*arg.Ref))
			} else {
				p.Arg(arg.Name, json.RawMessage(arg.JSON))
			}
		}
		p.DependsOnID(in.DependsOn...)
		if in.Expected.Set && in.Expected.Ref != nil {
			p.Expect(client.ResultRef(*in.Expected.Ref))
		} else if in.Expected.Set {
			p.Expect(in.Expected.Cursor)
		}
		if l.Atomic {
			b.Atomic()
		}
	}
	if f := ledger.CheckSize(intents, session.DefaultLimits().Limits); f != nil {
		return f.Code.With("lines %d to %d: %s", group[0].Line, group[len(group)-1].Line, f.Message)
	}
	a.batches = append(a.batches, b)
	a.last = append(a.last, group[len(group)-1].Line)
	return nil
}

// intent returns a line with its labels replaced by op ids, checked as far as possible.
func (a *appendPlan) intent(l *opLine, opID string) (*ledger.Intent, error) {
	if err := checkMethod(l); err != nil {
		return nil, err
	}
	if l.OpID != "" {
		opID = l.OpID
		a.labels[opID] = opID
	}
	in := &ledger.Intent{OpID: opID, Method: l.Method, DependsOn: make([]string, len(l.DependsOn))}
	for i, op := range l.DependsOn {
		in.DependsOn[i] = a.opID(l, op)
	}
	for _, arg := range l.Args {
		in.Args = append(in.Args, ledger.Arg{Name: arg.Name, JSON: arg.JSON, Ref: a.ref(l, arg.Ref)})
	}
	if e := l.Expected; e != nil {
		in.Expected = ledger.Expect{Set: true, Ref: a.ref(l, e.Ref)}
		if e.Ref == nil {
			if err := json.Unmarshal(e.JSON, &in.Expected.Cursor); err != nil {
				return nil, lineError(l.Line, "expected_cursor: %s", jsonerr.Text(err))
			}
		}
	}
	if l.As != "" {
		a.labels[l.As] = opID
	}
	if err := checkShareLimits(l); err != nil {
		return nil, err
	}
	if l.Method == session.MethodShare && !l.has("ref") && !l.has("hash") {
		a.mint(in, l.has("seal"))
	}
	lim := session.DefaultLimits()
	f := ledger.CheckIntent(in, lim.Limits)
	if f == nil {
		_, f = opargs.CheckOps([]ledger.Intent{*in}, lim)
	}
	if f != nil {
		return nil, f.Code.With("line %d: %s", l.Line, f.Message)
	}
	return in, nil
}

// checkShareLimits refuses limits of a share that are present without effect, like the flags of
// mooring share: the ref would allow more than intended.
func checkShareLimits(l *opLine) error {
	for _, a := range l.Args {
		limits := slices.Contains([]string{"children", "methods", "message", "read_keys", "write_keys", "ask", "answer", "from", "expires_at", "expires_in", "redemptions", "actor", "seal"}, a.Name)
		if l.Method == session.MethodShare && limits && a.Ref == nil && slices.Contains([]string{"null", `""`, "0", "[]"}, string(a.JSON)) {
			return fault.BadArgument.With("line %d: %s is %s, which limits nothing: give it a value, or leave it out", l.Line, a.Name, a.JSON)
		}
	}
	return nil
}

// mint mints the ref of a share that has none.
func (a *appendPlan) mint(in *ledger.Intent, sealed bool) {
	ref := a.session.Ref().New(a.session.ID())
	if sealed {
		ref = a.session.Ref().NewSealed(a.session.ID())
	}
	a.mintedRefs[in.OpID] = ref
	id, _ := json.Marshal(ref.ID)                  // strings always marshal
	hash, _ := json.Marshal(ref.Secret.HashText()) // …
	in.Args = append(in.Args, ledger.Arg{Name: "ref", JSON: id}, ledger.Arg{Name: "hash", JSON: hash})
}

func (a *appendPlan) opID(l *opLine, name string) string {
	if id, ok := a.labels[name]; ok {
		return id
	}
	a.externalOps = append(a.externalOps, namedOp{line: l.Line, op: name})
	return name
}

func (a *appendPlan) ref(l *opLine, r *opLineRef) *ledger.Ref {
	if r == nil {
		return nil
	}
	return &ledger.Ref{Op: a.opID(l, r.Op), Path: r.Path}
}

// shownOp is an op as append prints it with --json.
type shownOp struct {
	Op      string          `json:"op"`
	Batch   string          `json:"batch"`
	Outcome string          `json:"outcome"` // "queued" until it is answered
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	Cursor  uint64          `json:"cursor,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Cause   string          `json:"cause,omitempty"`
	Ref     string          `json:"ref,omitempty"`  // the id of a ref minted here
	Text    string          `json:"text,omitempty"` // the whole ref
}

// reportAppended prints the outcomes of the batches so far.
func reportAppended(ctx context.Context, h *home.Folder, c *client.Client, a *appendPlan, tickets []client.Ticket, wait bool) error {
	var refused, unread error
	bad, total, queued := 0, 0, 0
	waiting, stop := ctx, context.CancelFunc(func() {})
	if !wait {
		waiting, stop = home.WhileReachable(ctx, c, home.SendGrace)
	} else {
		defer h.ReportWaiting(ctx, c)()
	}
	defer stop()
	var still *outbox.StreamStoppedError
	for _, t := range tickets {
		results, stopped, err := home.AwaitResults(ctx, waiting, c, t)
		if unread == nil {
			unread = err
		}
		if stopped != nil {
			still = stopped
		}
		total += len(t.Ops)
		if results == nil {
			queued += len(t.Ops)
		}
		for i, op := range t.Ops {
			shown := shownOp{Op: op, Batch: t.Batch, Outcome: "queued"}
			if ref, ok := a.mintedRefs[op]; ok {
				shown.Ref, shown.Text = ref.ID, ref.Text()
			}
			if results != nil {
				fillOutcome(&shown, &results[i])
				if err := results[i].Err(); err != nil {
					bad++
					if refused == nil {
						refused = err
					}
				}
			}
			if err := printOp(h, &shown); err != nil {
				return err
			}
		}
	}
	switch {
	case unread != nil:
		return unread
	case refused != nil:
		return fmt.Errorf("%d of %s did not apply: %w", bad, cli.Plural(total, "op"), refused)
	case queued > 0 && still != nil:
		return fmt.Errorf("durable in the outbox and not sent, %d of %s: %w", queued, cli.Plural(total, "op"), home.StoppedError(still))
	case queued > 0 && wait:
		return fault.Canceled.With("stopped waiting: durable and not answered yet, %d of %s", queued, cli.Plural(total, "op"))
	case queued > 0:
		h.ReportQueued(ctx, c, fmt.Sprintf("%d of %s waiting", queued, cli.Plural(total, "op")))
	}
	return nil
}

func fillOutcome(to *shownOp, o *client.Outcome) {
	to.Outcome, to.Cursor, to.Message, to.Cause = string(o.Status), o.Cursor, o.Message, o.Cause
	to.Result = o.Result
	if o.Reason != fault.None {
		to.Reason = o.Reason.String()
	}
}

func printOp(h *home.Folder, o *shownOp) error {
	if h.Env.JSON {
		return h.Env.PrintJSON(o)
	}
	line := []string{o.Op, o.Outcome}
	if o.Cursor != 0 {
		line = append(line, fmt.Sprintf("cursor %d", o.Cursor))
	}
	if o.Reason != "" {
		line = append(line, o.Reason+": "+cli.ClipLine(o.Message))
	}
	if o.Text != "" {
		line = append(line, o.Text)
	}
	_, err := fmt.Fprintln(h.Env.Out, strings.Join(line, "  "))
	return err
}
