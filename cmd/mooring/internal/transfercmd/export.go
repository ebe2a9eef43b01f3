// mooring session export: prints the folded session as an opencode export, or as UIMessages of the AI SDK.

package transfercmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/uimessage"
)

func sessionExportCmd(h *home.Folder) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export REF",
		Short: "Print the folded session as an opencode export, or as UIMessages of the AI SDK",
		Long: "Print the folded session as an opencode export: its info, then its messages, each with its\n" +
			"parts, in the session's order: by first put, or by creation time if opencode made the\n" +
			"session (imported or shared), and the values of kinds of your own by key, in a member state,\n" +
			"which session import reads back, as it does the members compacted, up to where the session is\n" +
			"compacted, and origin, what it was forked from. Every value is printed byte for byte as it was put. The export\n" +
			"is always one JSON document of many lines; --json changes only errors. --children adds, in a\n" +
			"member children, the exports of the session's children that REF reaches, or else of which the\n" +
			"home folder has a ref, with theirs, which session import makes again. --compacted prints the compacted view: of a\n" +
			"session that is compacted, the summary and the messages after the mark. --changed adds, in a member\n" +
			"changed, who changed each value of your own kinds last, when (Unix ms) and at which cursor; session\n" +
			"import ignores it.\n\n" +
			"--format uimessage prints an array of the AI SDK's UIMessages (npm ai 7), which session import reads\n" +
			"back. It has no place for values of your own kinds, children, the origin and the mark of a compaction.\n\n" + home.RefHelp,
		Example: "  mooring session export ses_01J… > session.json\n" +
			"  mooring session export @reader.ref\n" +
			"  mooring session export ses_01J… --format uimessage > chat.json",
		Args: cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !slices.Contains(exportFormats, o.format):
				return errFormat(exportFormats)
			case o.format == formatUIMessage && (o.children || o.changed):
				return fault.Usage.With("--children and --changed have no place in UIMessages")
			}
			return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				s, err := h.Session(ctx, c, args[0])
				if err != nil {
					return err
				}
				return exportSession(ctx, h, c, s, o)
			})
		},
	}
	cmd.Flags().BoolVar(&o.children, "children", false, "with the session's children, and theirs")
	cmd.Flags().BoolVar(&o.compacted, "compacted", false, "the compacted view: the summary and what follows")
	cmd.Flags().BoolVar(&o.changed, "changed", false, "with who changed each value of your own kinds last, and when")
	formatFlag(cmd, &o.format, formatOpencode, "what is printed", exportFormats)
	return cmd
}

// exportOptions are the flags of export.
type exportOptions struct {
	children, compacted, changed bool
	format                       string
}

// The formats of a file that has a session.
const (
	formatOpencode  = "opencode"
	formatUIMessage = "uimessage"
)

// exportFormats are the values of export's --format.
var exportFormats = []string{formatOpencode, formatUIMessage}

// formatFlag adds --format, with its values.
func formatFlag(cmd *cobra.Command, format *string, value, usage string, formats []string) {
	cmd.Flags().StringVar(format, "format", value, usage+": "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

func errFormat(formats []string) error {
	return fault.Usage.With("--format is one of %s", strings.Join(formats, ", "))
}

func exportSession(ctx context.Context, h *home.Folder, c *client.Client, s *client.Session, o exportOptions) error {
	var doc io.WriterTo
	var err error
	if o.format == formatUIMessage {
		doc, err = uiMessagesOf(ctx, h, s, o)
	} else {
		doc, err = exportOf(ctx, h, c, s, o)
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriter(h.Env.Out)
	if _, err := doc.WriteTo(out); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return out.Flush()
}

// exportOf returns the export of a session.
func exportOf(ctx context.Context, h *home.Folder, c *client.Client, s *client.Session, o exportOptions) (*opencode.Export, error) {
	info, err := s.Describe(ctx)
	if err != nil {
		return nil, err
	}
	state, err := s.SnapshotWith(ctx, client.SnapshotOptions{Compacted: o.compacted})
	if err != nil {
		return nil, err
	}
	name := info.Session.External
	if name == "" {
		name = s.ID()
	}
	doc := opencode.NewExport(putsOf(state), name)
	doc.Origin = opencode.Origin(info.Session.Origin)
	if at := info.Session.Compacted; !o.compacted && state.Entry(at.Upto) != nil && state.Entry(at.Summary) != nil { // the state is a later one
		doc.SetCompacted(opencode.Compaction{Upto: at.Upto, Summary: at.Summary})
	}
	reportOrphans(h, doc.Orphans)
	if o.changed {
		if doc.Changed, err = changesOf(ctx, s, state); err != nil {
			return nil, err
		}
	}
	if !o.children {
		return doc, nil
	}
	reaches := info.Grant.Children.Has(capability.Read) || capability.IsSpace(capability.Target(info.Grant.Ref))
	for info, err := range s.Children(ctx) {
		var child *client.Session
		if err == nil {
			if reaches {
				child, err = s.Open(info.ID)
			} else {
				child, err = c.SessionByID(ctx, info.ID)
			}
		}
		if errors.Is(err, fault.NotFound) {
			fmt.Fprintf(h.Env.Err, "left out the child %s: the home folder has no ref of it\n", info.ID)
			continue
		}
		if err != nil {
			return nil, err
		}
		below, err := exportOf(ctx, h, c, child, o)
		if err != nil {
			return nil, fmt.Errorf("child %s: %w", info.ID, err)
		}
		doc.AddChild(info.Parent.Key, below)
	}
	return doc, nil
}

// uiMessagesOf returns a session as UIMessages.
func uiMessagesOf(ctx context.Context, h *home.Folder, s *client.Session, o exportOptions) (*uimessage.Export, error) {
	state, err := s.SnapshotWith(ctx, client.SnapshotOptions{Compacted: o.compacted})
	if err != nil {
		return nil, err
	}
	doc := uimessage.NewExport(putsOf(state))
	reportOrphans(h, doc.Orphans)
	if doc.LeftOut > 0 {
		fmt.Fprintf(h.Env.Err, "left out %s of other kinds: UIMessages have no place for them\n", cli.Plural(doc.LeftOut, "value"))
	}
	return doc, nil
}

func putsOf(state *client.State) []opencode.Put {
	puts := make([]opencode.Put, len(state.Entries))
	for i, e := range state.Entries {
		puts[i] = opencode.Put{Key: e.Key, Payload: e.Payload}
	}
	return puts
}

func reportOrphans(h *home.Folder, n int) {
	if n > 0 {
		fmt.Fprintf(h.Env.Err, "left out %s whose message is not there\n", cli.Plural(n, "part"))
	}
}

// changesPage is how many keys are asked for at once.
const changesPage = 1000

// changesOf returns who changed the values of own kinds last. One that has changed since the state is left out.
func changesOf(ctx context.Context, s *client.Session, state *client.State) (changes []opencode.Change, err error) {
	for after, more := "", true; more; more = after != "" {
		page, err := s.ListPage(ctx, client.KeyOptions{Order: client.ByKey}, after, changesPage)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			if k, bad := session.ParseKey(e.Key); bad == nil && k.Own() && e.Cursor <= state.Cursor {
				changes = append(changes, opencode.Change{Key: e.Key, Cursor: e.Cursor, At: e.At.UnixMilli(), Ref: e.Ref, Actor: e.Actor})
			}
		}
		after = page.Next
	}
	return changes, nil
}
