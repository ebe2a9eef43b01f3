// mooring session import: appends an opencode export or recording, a transcript, or UIMessages of the AI SDK, through the
// outbox. It is repeatable: batches committed before are not committed again.

package transfercmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/outbox"
)

func sessionImportCmd(h *home.Folder) *cobra.Command {
	var owner string
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import an opencode export or recording, a transcript of Claude Code or Codex, or UIMessages",
		Long: "Import an opencode export (JSON), a recording of its share traffic (JSONL, one request a line;\n" +
			"each sync request becomes one batch), a transcript of Claude Code or Codex (JSONL), or an array of\n" +
			"the AI SDK's UIMessages (JSON), and print the session's id. Its ref is stored in the home folder.\n" +
			"What looks like a secret is counted on standard error before anything leaves this machine, and\n" +
			"--redact puts a mark in its place. Everything is durable in the outbox before anything is sent; without a\n" +
			"server it stays there. Run again on the same file, it continues or changes nothing; on a\n" +
			"file that has grown, it imports the rest. A session with a parent (opencode's parentID) becomes\n" +
			"a child of that one if the home folder has imported it; the children of an export --children\n" +
			"are imported with it, a line each. If opencode has compacted the session, or an export says so,\n" +
			"the imported one is marked so (session compact).\n\n" +
			"What the file is shows in what it begins with, or say it with --format. UIMessages that Mooring did\n" +
			"not export name no session: it gets an id that is made of the first message, or --external.",
		Example: "  mooring session import recording.jsonl --owner @data/owner.ref\n  opencode export ses_… | mooring session import -\n" +
			"  mooring session import ~/.claude/projects/-home-ada-project/0b51….jsonl --redact\n  mooring session import chat.json",
		Args: cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.format != "" && !slices.Contains(importFormats, o.format) {
				return errFormat(importFormats)
			}
			if arg, _ := h.OwnerArg(owner); arg != "" { // before standard input is read
				if _, _, err := h.Ref(cmd.Context(), arg); err != nil {
					return err
				}
			}
			rec, err := readRecording(cmd.Context(), h, args, o)
			if err != nil {
				return err
			}
			if err := o.guard(h.Env, rec); err != nil {
				return err
			}
			if !h.Env.JSON {
				for _, n := range rec.Notices {
					fmt.Fprintln(h.Env.Err, n)
				}
			}
			return h.WithClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return importRecording(ctx, h, c, rec, owner)
			})
		},
	}
	cli.OwnerFlag(cmd, &owner)
	cmd.Flags().BoolVar(&o.skipTooLarge, "skip-too-large", false, "leave out payloads that are too large, and name them, instead of refusing the file")
	formatFlag(cmd, &o.format, "", "what the file is, if that does not show", importFormats)
	cmd.Flags().StringVar(&o.external, "external", "", "the id another system knows the session by, of UIMessages")
	cmd.Flags().BoolVar(&o.redact, "redact", false, "put a mark in the place of what looks like a secret")
	return cmd
}

// importRun is one import in progress.
type importRun struct {
	h          *home.Folder
	c          *client.Client
	rec        *opencode.Recording
	parent     *client.Session // whose child the session is, if the file says so
	part       string          // key of what starts it; "" if none is named
	session    *client.Session
	journal    *journal
	tickets    []client.Ticket // of the whole file, in order, its session's creation first
	ops        []int           // number of ops of each ticket
	newOps     int             // ops committed by this run
	pendingOps int             // ops of earlier runs not answered yet
}

func importRecording(ctx context.Context, h *home.Folder, c *client.Client, rec *opencode.Recording, owner string) error {
	runs, err := (&importRun{h: h, c: c, rec: rec}).commitAll(ctx, owner)
	if err != nil {
		return err
	}
	for _, im := range runs {
		answered, err := im.awaitAnswers(ctx)
		if err == nil && answered {
			err = im.markCompacted(ctx)
		}
		if err == nil {
			err = im.printResult(ctx, answered)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commitAll makes the file durable, and its children's; it returns their imports, a session's before those of
// its children.
func (im *importRun) commitAll(ctx context.Context, owner string) (runs []*importRun, err error) {
	if err := im.begin(ctx, owner); err != nil {
		return nil, err
	}
	if err := im.commit(ctx); err != nil {
		return nil, fmt.Errorf("%w; %s", err, im.durableSummary())
	}
	runs = append(runs, im)
	for _, child := range im.rec.Children {
		below, err := (&importRun{h: im.h, c: im.c, rec: child.Recording, parent: im.session, part: child.Part}).commitAll(ctx, owner)
		if err != nil {
			return nil, fmt.Errorf("child %s: %w", cli.SanitizeLine(child.External), err)
		}
		runs = append(runs, below...)
	}
	return runs, nil
}

// begin finds the session into which the file was imported before, or creates it.
func (im *importRun) begin(ctx context.Context, owner string) error {
	dir, err := im.h.MakeDir()
	if err != nil {
		return err
	}
	// The same import may run twice at once: the second finds the session that the first created.
	unlock, err := home.Lock(ctx, filepath.Join(dir, "imports.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	ref, space, err := im.find(ctx, owner)
	if err != nil {
		return err
	}
	if ref.ID == "" {
		ref = space.NewOwner()
	}
	if im.journal, err = openJournal(dir, ref.Target()); err != nil {
		return err
	}
	created := im.journal.createChain()
	if im.journal.done[created] {
		// The creation is awaited first: nothing else can have been applied without it.
		im.tickets, im.ops = append(im.tickets, im.c.Ticket(im.journal.batchID(created))), append(im.ops, 1)
		if im.session, err = im.c.Session(ctx, ref); err != nil {
			return err
		}
		im.pendingOps, err = unfinishedOf(ctx, im.c, ref.Target())
		return err
	}
	if space == nil {
		if space, err = im.h.Owner(ctx, im.c, owner, capability.Create); err != nil {
			return err
		}
	}
	// The ref is saved before the batch is committed: after a crash between the two it is found
	// again.
	meta := outbox.RefMeta{Role: outbox.SessionOwner, External: im.rec.External}
	if err := im.c.Outbox().PutRef(ctx, ref, meta); err != nil {
		return fmt.Errorf("keep the session's ref: %w", err)
	}
	o := client.CreateOptions{External: im.rec.External, ByTime: !im.rec.ByLog, Owner: ref, BatchID: im.journal.batchID(created), Part: im.part, Origin: client.Origin(im.rec.Origin)}
	if o.Parent, err = im.knownParent(ctx, space); err != nil {
		return err
	}
	_, b := space.Create(o)
	if err := im.commitBatch(ctx, b, created); err != nil {
		return err
	}
	im.session, err = im.c.Session(ctx, ref)
	return err
}

// find returns the session's ref among the home's refs. If there is none, or an owner is named,
// it returns the owner's space.
func (im *importRun) find(ctx context.Context, owner string) (ref capability.Ref, space *client.Space, err error) {
	refs, err := im.c.Outbox().Refs(ctx)
	if err != nil {
		return ref, nil, fmt.Errorf("look up the refs: %w", err)
	}
	if owner != "" {
		if space, err = im.h.Owner(ctx, im.c, owner, capability.Create); err != nil {
			return ref, nil, err
		}
	}
	for _, r := range refs {
		unmade := r.Dead != fault.None && r.Confirmed.IsZero() // its creation was refused
		if r.External != im.rec.External || r.Role != outbox.SessionOwner || unmade || space != nil && r.Address() != space.Ref().Address() {
			continue
		}
		if ref.ID != "" {
			return ref, nil, fault.Ambiguous.With("the home folder has session %s on more than one server: say which with --owner", im.rec.External)
		}
		ref = r.Ref
	}
	if ref.ID == "" && space == nil {
		space, err = im.h.Owner(ctx, im.c, owner, capability.Create)
	}
	return ref, space, err
}

// knownParent returns the session whose child the new one is: the one that the file is of, or that the home
// folder owns under opencode's id of the parent; nil if there is none.
func (im *importRun) knownParent(ctx context.Context, space *client.Space) (*client.Session, error) {
	if im.parent != nil || im.rec.Parent == "" {
		return im.parent, nil
	}
	saved, err := im.c.Outbox().RefFor(ctx, im.rec.Parent, capability.Append)
	if err == nil && saved.Role == outbox.SessionOwner && saved.Dead == fault.None && saved.Address() == space.Ref().Address() {
		return im.c.Session(ctx, saved.Ref)
	}
	fmt.Fprintf(im.h.Env.Err, "its parent %s is not one of this home folder's sessions: imported without one\n", cli.SanitizeLine(im.rec.Parent))
	return nil, nil
}

// unfinishedOf counts the ops of a session that are not answered.
func unfinishedOf(ctx context.Context, c *client.Client, session string) (n int, err error) {
	st, err := c.Status(ctx)
	for _, s := range st.Streams {
		if s.Session == session {
			n = s.Unfinished
		}
	}
	return n, err
}

// total returns the number of the file's ops, including the creation of its session.
func (im *importRun) total() int {
	n := 1
	for _, b := range im.rec.Batches {
		n += len(b.Puts)
	}
	return n
}

// durableSummary says how much is durable, and what to do about the rest.
func (im *importRun) durableSummary() string {
	n := 0
	for _, ops := range im.ops {
		n += ops
	}
	return fmt.Sprintf("%d of %s safe in the outbox: import the file again, and it goes on there", n, cli.Plural(im.total(), "op"))
}

// commit makes every batch durable that is not yet.
func (im *importRun) commit(ctx context.Context) error {
	bar := cli.NewProgress(im.h.Env, "ops saved", im.total())
	defer bar.Clear()
	for i := range im.rec.Batches {
		rb := &im.rec.Batches[i]
		b := im.session.Batch().SetID(im.journal.batchID(rb.Chain))
		if im.journal.done[rb.Chain] {
			im.tickets, im.ops = append(im.tickets, im.c.Ticket(b.ID())), append(im.ops, len(rb.Puts))
			continue
		}
		for _, p := range rb.Puts {
			b.Put(p.Key, p.Payload)
		}
		if err := im.commitBatch(ctx, b, rb.Chain); err != nil {
			return fmt.Errorf("line %d: %w", rb.Line, err)
		}
		bar.Set(1+im.newOps, im.total())
	}
	return nil
}

// markCompacted marks the session as compacted, if the file says so and it is not yet. All else is imported then, and
// a server that does not know the mark, or refuses it, is no failure.
func (im *importRun) markCompacted(ctx context.Context) error {
	c, chain := im.rec.Compaction, im.rec.CompactionChain()
	if c == (opencode.Compaction{}) || im.journal.done[chain] {
		return nil
	}
	wait, stop := home.WhileReachable(ctx, im.c, 0)
	defer stop()
	err := im.session.CheckFeatures(wait, "compact")
	if err == nil {
		b := im.session.Batch().SetID(im.journal.batchID(chain))
		b.Compact(c.Upto, c.Summary)
		if err := im.commitBatch(ctx, b, chain); err != nil {
			return err
		}
		var results client.Results
		if results, err = im.tickets[len(im.tickets)-1].Wait(wait); err == nil {
			err = results.Err()
		}
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(im.h.Env.Err, "all of it is imported, but not marked as compacted: %v\n", cli.MessageOf(err))
	}
	return nil
}

// commitBatch commits a batch and then adds it to the journal: after a crash between the two it
// is committed again under the same id, which changes nothing.
func (im *importRun) commitBatch(ctx context.Context, b *client.Batch, chain [32]byte) error {
	t, err := b.Commit(ctx)
	if err != nil {
		return err
	}
	im.tickets, im.ops = append(im.tickets, t), append(im.ops, b.Len())
	im.newOps += b.Len()
	return im.journal.add(chain)
}

// awaitAnswers shows the progress of answers, while the server is reachable. Ops answered before
// this run are not counted.
func (im *importRun) awaitAnswers(ctx context.Context) (answered bool, err error) {
	total := im.newOps + im.pendingOps
	bar := cli.NewProgress(im.h.Env, "ops sent", total)
	defer bar.Clear()
	wait, stop := home.WhileReachable(ctx, im.c, 0)
	defer stop()
	defer im.h.ReportWaiting(wait, im.c)()
	done := total - im.total() // ops answered before come first in the file
	for i, t := range im.tickets {
		results, err := t.Wait(wait)
		var still *outbox.StreamStoppedError
		switch {
		case err == nil:
			if err := results.Err(); err != nil {
				return true, im.explainRefusal(ctx, t.Batch, err)
			}
		case errors.Is(err, fault.NotFound): // finished so long ago that the outbox has forgotten it
		case errors.As(err, &still):
			return false, fmt.Errorf("what was read is durable in the outbox, but not all of it was sent: %w", home.StoppedError(still))
		case ctx.Err() != nil:
			return false, fault.Canceled.With("stopped: all of it is durable in the outbox (%s), and any later command sends the rest", cli.Plural(im.total(), "op"))
		case wait.Err() != nil:
			still, err = im.c.Outbox().Stopped(ctx, im.session.ID())
			if still != nil {
				err = fmt.Errorf("what was read is durable in the outbox, but not all of it was sent: %w", home.StoppedError(still))
			}
			return false, err
		default:
			return false, err
		}
		done += im.ops[i]
		bar.Set(max(done, 0), total)
	}
	bar.Finish()
	return true, nil
}

// explainRefusal makes another attempt possible if the session was not created.
func (im *importRun) explainRefusal(ctx context.Context, batch string, why error) error {
	if errors.Is(why, fault.SessionDeleted) {
		return im.deletedError()
	}
	if !errors.Is(why, fault.AlreadyExists) {
		return fmt.Errorf("session %s: an op was refused, mooring outbox list --session %s says which: %w", im.session.ID(), im.session.ID(), why)
	}
	err := errors.Join(im.c.Outbox().DropRef(ctx, im.session.Ref().ID, false), im.journal.forget())
	there := fault.AlreadyExists.Because(why, "the owner has session %s already, imported from another home folder: use that one, or redeem a ref to it here", im.rec.External)
	there.Batch = batch
	return errors.Join(there, err)
}

// deletedError says what to do about a deleted session.
func (im *importRun) deletedError() error {
	return fault.SessionDeleted.With("session %s was deleted after it was imported: mooring refs forget %s --force, and then import the file as a new one", im.rec.External, im.session.Ref().ID)
}

// checkAlive checks a session that has the whole file, as far as the server can be asked.
func (im *importRun) checkAlive(ctx context.Context) error {
	wait, stop := home.WhileReachable(ctx, im.c, home.SendGrace)
	defer stop()
	d, err := im.session.Describe(wait)
	switch {
	case err != nil:
		return nil // a later command will find out
	case d.Grant.Dead == fault.SessionDeleted:
		return im.deletedError()
	}
	return home.DeadError(d)
}

func (im *importRun) printResult(ctx context.Context, answered bool) error {
	env := im.h.Env
	if answered && im.newOps == 0 {
		if err := im.checkAlive(ctx); err != nil {
			return err
		}
	}
	if env.JSON {
		return env.PrintJSON(map[string]any{
			"session": im.session.ID(), "external": im.rec.External, "batches": len(im.rec.Batches),
			"new_ops": im.newOps, "queued": !answered, "notices": append([]string{}, im.rec.Notices...),
		})
	}
	switch {
	case !answered:
		im.h.ReportQueued(ctx, im.c, cli.Plural(im.newOps, "new op")+" safe")
	case im.newOps == 0:
		fmt.Fprintln(env.Err, "nothing new: all of it was imported before")
	default:
		fmt.Fprintf(env.Err, "imported %s: %s, %s\n", im.rec.External, cli.Plural(len(im.rec.Batches), "batch"), cli.Plural(im.newOps, "new op"))
	}
	_, err := fmt.Fprintln(env.Out, im.session.ID())
	return err
}
