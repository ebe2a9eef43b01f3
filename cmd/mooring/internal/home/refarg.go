// Resolution of a REF on a command line to a ref, a session or a space.

package home

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/outbox"
)

// RefHelp is in the help of every command that takes a REF.
const RefHelp = "REF is a ref's text, @FILE that contains one, or the id of a session (or its external id, if it is\n" +
	"unambiguous) or of a ref that the home folder knows. Process lists show a text given as an\n" +
	"argument, with its secret; use @FILE to avoid that. SPACE/ID is the session of that id by the\n" +
	"right manage, where SPACE is a ref of its space, given as a REF: @srv/owner.ref/ses_01J…\n" +
	"REF/ID is a session below that of REF, which was shared --with-children."

// Arg is a parsed REF.
type Arg struct {
	ref   capability.Ref
	id    string // if it is not a ref's text
	Under string // what follows in SPACE/ID or REF/ID, of which ref and id are SPACE or REF: the id of a session, or of a ref of one
	Err   error  // why the text is no REF: BadRefText or Usage, or that of a read that was stopped
}

// InSpace reports whether the ref is one of a space.
func (a *Arg) InSpace() bool {
	if a.id == "" {
		return capability.IsSpace(a.ref.Target())
	}
	return capability.IsSpace(a.id) || capability.IsSpace(capability.Target(a.id))
}

// maxRefFile bounds a file with a ref, in bytes, including white space.
const maxRefFile = 4096 + 16

// Ref parses REF: a ref, or an id, which is not looked up yet. A file's content is kept,
// since a pipe can be read once. Errors never contain the text, and are those of Arg.Err.
func (h *Folder) Ref(ctx context.Context, arg string) (ref capability.Ref, id string, err error) {
	got := h.Arg(ctx, arg)
	if got.Err == nil && got.Under != "" {
		got.Err = fault.Usage.With("a session that is opened through another ref does not do here: give a ref to it, which mooring share SPACE/ID makes")
	}
	return got.ref, got.id, got.Err
}

// Arg is Ref, for SPACE/ID and REF/ID too; its error is in the result.
func (h *Folder) Arg(ctx context.Context, arg string) Arg {
	got, known := h.refArgs[arg]
	if !known {
		got = readRefArg(ctx, arg)
		if h.refArgs == nil {
			h.refArgs = map[string]Arg{}
		}
		h.refArgs[arg] = got
	}
	return got
}

// cutOpened splits SPACE/ID and REF/ID.
func cutOpened(text string) (outer, id string, ok bool) {
	i := strings.LastIndex(text, "/")
	if i <= 0 {
		return "", "", false
	}
	outer, id = text[:i], text[i+1:]
	session := id
	if target := capability.Target(id); target != "" {
		session = target
	}
	named := strings.HasPrefix(outer, "@") || strings.Contains(outer, "#") || capability.IsSpace(outer) || capability.IsSession(outer) || capability.Target(outer) != ""
	return outer, id, named && capability.IsSession(session)
}

func readRefArg(ctx context.Context, arg string) (a Arg) {
	text := TrimRef(arg)
	if outer, id, ok := cutOpened(text); ok {
		if a = readRefArg(ctx, outer); a.Err != nil {
			return a
		}
		switch {
		case a.Under != "":
			a.Err = fault.Usage.With("REF/ID has one /: a session at any depth is named with the ref that reaches it")
		case !a.InSpace() && !capability.IsSession(id):
			a.Err = fault.Usage.With("SPACE/REF-ID is a ref of a session of a space, and what comes before the / is no ref of a space")
		}
		a.Under = id
		return a
	}
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		data, err := cli.ReadFileLimited(ctx, name, maxRefFile)
		if errors.Is(err, cli.ErrStopped) {
			a.Err = err
			return a
		}
		if err != nil {
			a.Err = fault.BadRefText.Because(err, "%v", err)
			return a
		}
		text = TrimRef(string(data))
		switch {
		case text == "":
			a.Err = fault.BadRefText.With("%s is empty: it should hold a ref's text", name)
		case strings.Count(text, "://") > 1 && strings.ContainsAny(text, " \t\r\n"):
			a.Err = fault.BadRefText.With("%s holds more than one ref: name a file with one", name)
		default:
			a.ref, a.Err = parseRefText(text)
			if a.Err != nil {
				a.Err = fault.CodeOf(a.Err).Because(a.Err, "%s: %s", name, cli.MessageOf(a.Err))
			}
		}
		return a
	}
	switch {
	case text == "":
		a.Err = fault.Usage.With("REF is empty: give a ref's text, @FILE or an id")
	case strings.Contains(text, "://"):
		if a.ref, a.Err = parseRefText(text); a.Err != nil {
			a.Err = cli.UsageError{Err: a.Err}
		}
	default:
		a.id = text
	}
	return a
}

// TrimRef removes the white space and marks that editors and terminals add around a text.
func TrimRef(text string) string {
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "\ufeff"))
}

func parseRefText(text string) (capability.Ref, error) {
	if strings.ContainsAny(text, " \t\r\n") {
		return capability.Ref{}, fault.BadRefText.With("there is white space within the ref: was it broken into lines?")
	}
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		return parsePageAddress(text)
	}
	ref, err := capability.ParseRef(text)
	if _, secret, _ := strings.Cut(text, "#"); err != nil && len(secret) > secretText {
		err = fault.BadRefText.With("the secret has %d characters, not %d: is there something after the ref?", len(secret), secretText)
	}
	return ref, err
}

// secretText is the length of a secret's text: 32 bytes in base64url.
const secretText = 43

// parsePageAddress parses the output of mooring link, which contains the whole ref.
func parsePageAddress(text string) (ref capability.Ref, err error) {
	before, fragment, ok := strings.Cut(text, "#")
	at, id, secret := "", "", fragment
	if i := strings.LastIndex(before, "/s/"); i >= 0 {
		at, id = before[:i], before[i+len("/s/"):]
	} else if rest, is := strings.CutSuffix(before, "/sessions"); is {
		at = rest
		id, secret, _ = strings.Cut(fragment, "#")
	}
	switch {
	case at == "":
		return ref, fault.BadRefText.With("it does not start with mooring:// or moorings://, and is not the address of a page that mooring link prints either")
	case !ok || secret == "":
		return ref, fault.BadRefText.With("this is the address of a page as browsers show it, without the secret: give the address that mooring link printed, or the ref")
	}
	if ref, err = capability.ParseAddress(at); err != nil {
		return ref, err
	}
	return capability.ParseRef(ref.Address() + "/" + id + "#" + secret)
}

// SavedRef returns the saved ref of an id: a ref's own, or its target's. Of several refs of a
// target it is one with the right want. Of an id that the home folder does not know the error is fault.NotFound, and says what
// to do.
func (h *Folder) SavedRef(ctx context.Context, box *outbox.Box, id string, want capability.Rights) (saved outbox.SavedRef, err error) {
	if capability.Target(id) != "" {
		saved, err = box.Ref(ctx, id)
	} else {
		saved, err = box.RefFor(ctx, id, want)
	}
	return saved, notSavedError(id, err)
}

// notSavedError adds to an error that the home folder does not know an id, and what to do.
func notSavedError(id string, err error) error {
	if fault.CodeOf(err) != fault.NotFound {
		return err
	}
	label := "no ref for this session"
	switch {
	case capability.Target(id) != "":
		label = "no such ref"
	case capability.IsSpace(id):
		label = "no ref for this space"
	}
	if info, e := os.Stat(id); e == nil && !info.IsDir() {
		return fault.NotFound.With("the home folder knows %s, but %s is a file: @%s stands for a ref in it", label, id, id)
	}
	return fault.NotFound.With("the home folder knows %s: give the ref's text or @FILE, or another --home", label)
}

// PassedSession is Session, for a fork's source and a child's parent, which take a ref of the session's own.
func (h *Folder) PassedSession(ctx context.Context, c *client.Client, arg string) (*client.Session, error) {
	if _, _, err := h.Ref(ctx, arg); err != nil {
		return nil, err
	}
	return h.Session(ctx, c, arg)
}

// Session returns the session of a REF. For a session's id each verb uses the saved ref that has
// the right it needs.
func (h *Folder) Session(ctx context.Context, c *client.Client, arg string) (*client.Session, error) {
	got := h.Arg(ctx, arg)
	if got.Err == nil && capability.IsSession(got.Under) {
		return h.Opened(ctx, c, got, got.Under)
	}
	ref, id, err := h.Ref(ctx, arg)
	if err != nil {
		return nil, err
	}
	switch {
	case id == "":
	case capability.Target(id) == "":
		s, err := c.SessionByID(ctx, id)
		if err != nil {
			return nil, notSavedError(id, err)
		}
		h.target = s.ID()
		return s, nil
	default:
		saved, err := h.SavedRef(ctx, c.Outbox(), id, 0)
		if err != nil {
			return nil, err
		}
		ref = saved.Ref
	}
	h.target = ref.Target()
	return c.Session(ctx, ref)
}

// Opened returns a session that is opened through the ref of SPACE/ID or REF/ID.
func (h *Folder) Opened(ctx context.Context, c *client.Client, arg Arg, id string) (*client.Session, error) {
	ref := arg.ref
	if arg.id != "" {
		want := capability.Manage
		if !arg.InSpace() {
			want = capability.Read
		}
		saved, err := h.SavedRef(ctx, c.Outbox(), arg.id, want)
		if err != nil {
			return nil, err
		}
		ref = saved.Ref
	}
	if !arg.InSpace() {
		s, err := c.Session(ctx, ref)
		if err != nil {
			return nil, err
		}
		h.target = id
		return s.Open(id)
	}
	sp, err := c.Space(ctx, ref)
	if err != nil {
		return nil, err
	}
	h.target = id
	return sp.Open(id)
}

// SessionOrSpace returns the session or the space of a REF; the other is nil. Of several refs of
// a space it uses one with the right want.
func (h *Folder) SessionOrSpace(ctx context.Context, c *client.Client, arg string, want capability.Rights) (*client.Session, *client.Space, error) {
	if h.Arg(ctx, arg).Under != "" {
		s, err := h.Session(ctx, c, arg)
		return s, nil, err
	}
	ref, id, err := h.Ref(ctx, arg)
	if err != nil {
		return nil, nil, err
	}
	if id == "" && !capability.IsSpace(ref.Target()) || id != "" && !capability.IsSpace(id) && !capability.IsSpace(capability.Target(id)) {
		s, err := h.Session(ctx, c, arg)
		return s, nil, err
	}
	if id != "" {
		saved, err := h.SavedRef(ctx, c.Outbox(), id, want)
		if err != nil {
			return nil, nil, err
		}
		ref = saved.Ref
	}
	h.target = ref.Target()
	sp, err := c.Space(ctx, ref)
	return nil, sp, err
}

// ExplainRefUsed adds to a refusal for a missing right which saved ref was used, if REF was a
// session's id.
func (h *Folder) ExplainRefUsed(ctx context.Context, c *client.Client, arg string, s *client.Session, want capability.Rights, err error) error {
	_, id, _ := h.Ref(ctx, arg)
	if !errors.Is(err, fault.MissingRight) || id == "" || capability.Target(id) != "" {
		return err
	}
	saved, e := c.Outbox().RefFor(ctx, s.ID(), want)
	if e != nil {
		return err
	}
	return fmt.Errorf("%w (it went through ref %s, the best of the home folder's refs for the session)", err, saved.ID)
}

// ForgetTarget has explainNeverCreated add nothing to the errors to come.
func (h *Folder) ForgetTarget() { h.target = "" }

// explainNeverCreated adds to an error about a missing session that its creation was refused in
// this outbox, which an offline command could not know.
func (h *Folder) explainNeverCreated(ctx context.Context, c *client.Client, err error) error {
	if h.target == "" || !errors.Is(err, fault.NotYetKnown) && !errors.Is(err, fault.NotFound) {
		return err
	}
	first := func(s outbox.State) ([]outbox.Row, error) {
		return c.Outbox().List(context.WithoutCancel(ctx), outbox.Filter{Session: h.target, States: []outbox.State{s}, Limit: 1})
	}
	if applied, e := first(outbox.Acked); e != nil || len(applied) > 0 {
		return err // it was created after all
	}
	rows, e := first(outbox.Failed)
	if e != nil || len(rows) == 0 || rows[0].Outcome == nil || rows[0].Method != session.MethodCreate && rows[0].Method != session.MethodFork {
		return err
	}
	forget := "mooring refs forget " + h.target + " --force"
	why := fault.CodeOf(rows[0].Outcome.Err()).Because(err, "this session was never made, because that was refused (%s); %s forgets it", rows[0].Outcome.Message, forget)
	if rows[0].Outcome.Reason == fault.AlreadyExists {
		why = fault.AlreadyExists.Because(err, "this session was never made: the owner has one of that name already, imported from another home folder; forget this one (%s), and redeem a ref to that one here", forget)
	}
	why.Batch = rows[0].Batch
	return why
}

// DeadError returns the error of every call under a dead ref, with the code that says why; nil if the ref is alive.
func DeadError(d client.Description) error {
	if d.Grant.Dead == fault.None {
		return nil
	}
	at := ""
	switch {
	case d.Grant.Dead == fault.SessionDeleted:
		return d.Grant.Dead.With("the ref is dead: its session was deleted")
	case d.Grant.Cut != 0:
		at = fmt.Sprintf(" (the cut is at cursor %d)", d.Grant.Cut)
	case d.Grant.Dead == fault.StaleEpoch:
		at = fmt.Sprintf(" (shared under epoch %d, the session is at epoch %d)", d.Grant.Epoch, d.Session.Epoch)
	}
	return d.Grant.Dead.With("the ref is dead%s: ask its sharer for a new one", at)
}
