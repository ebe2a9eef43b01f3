// mooring mcp: sessions for a model, by the Model Context Protocol on standard input and output.

package agentcmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/mcpserver"
)

// mcpAllowed is what mooring mcp --allow takes.
var mcpAllowed = []string{mcpserver.AllowAppend, mcpserver.AllowAsk, mcpserver.AllowShare}

// MCP returns the command mooring mcp.
func MCP(env *cli.Env) *cobra.Command {
	var allow []string
	var owner string
	cmd := &cobra.Command{
		Use:   "mcp [REF...] [--allow append,ask,share]",
		Short: "Serve sessions to a model, by MCP on standard input and output",
		Long: "A model's program starts this as a server of the Model Context Protocol: the model lists, reads and\n" +
			"searches sessions, and is told when one changes. Each REF is a session's or a space's; without any it\n" +
			"is the owner's. --allow adds what else it may do, where the refs allow it: append (messages and values\n" +
			"of your own kinds, through the outbox), ask (prompts, questions and stops, and wait for the answers),\n" +
			"share (make refs, which are written to files and never returned). No permission is ever answered\n" +
			"through it. It ends when its standard input does. mooring serve --mcp serves the same over HTTP.\n\n" + home.RefHelp,
		Example: "  mooring mcp\n  mooring mcp @reader.ref\n  mooring mcp --owner @srv/owner.ref --allow append,ask\n  claude mcp add mooring -- mooring mcp @reader.ref",
		Args:    cli.ArgCount(0, -1),
	}
	h := home.AddFlags(env, cmd)
	cli.OwnerFlag(cmd, &owner)
	cmd.Flags().StringSliceVar(&allow, "allow", nil, "what the model may do beside reading: append, ask, share; with commas")
	cli.CompleteList(cmd, "allow", mcpAllowed...)
	h.CompleteRefs(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := mcpserver.CheckAllow(allow, mcpAllowed...); err != nil {
			return fault.Usage.Because(err, "--allow: %v", err)
		}
		if owner != "" && len(args) > 0 {
			return fault.Usage.With("give REFs or --owner, not both")
		}
		for _, arg := range args {
			if err := h.Arg(cmd.Context(), arg).Err; err != nil {
				return err
			}
		}
		return h.WithClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
			from, err := newMCPSource(ctx, h, c, owner, args)
			if err != nil {
				return err
			}
			return serveMCP(ctx, h, from, allow)
		})
	}
	return cmd
}

// newMCPSource returns the sessions that the REFs reach, or the owner's.
func newMCPSource(ctx context.Context, h *home.Folder, c *client.Client, owner string, args []string) (*mcpSource, error) {
	from := &mcpSource{home: h, client: c}
	if len(args) == 0 {
		sp, err := h.Owner(ctx, c, owner, capability.List)
		from.roots = append(from.roots, mcpRoot{space: sp})
		return from, err
	}
	for _, arg := range args {
		s, sp, err := h.SessionOrSpace(ctx, c, arg, capability.List)
		if err != nil {
			return nil, err
		}
		from.roots = append(from.roots, mcpRoot{s, sp})
	}
	return from, nil
}

// serveMCP serves one client until its input ends.
func serveMCP(ctx context.Context, h *home.Folder, from *mcpSource, allow []string) error {
	defer h.Env.Signals.OutliveReader()()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	server := mcpserver.New(serving, mcpserver.Config{Source: from, Allow: allow, Version: cli.Version(), Share: from.share,
		Log: slog.New(slog.NewTextHandler(h.Env.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	wire := &stdioWire{in: h.Env.In, out: h.Env.Out}
	err := server.Run(ctx, &mcp.IOTransport{Reader: wire, Writer: wire})
	if err != nil && ctx.Err() == nil && !wire.gone.Load() {
		return fmt.Errorf("serve the Model Context Protocol: %w", err)
	}
	return nil
}

// stdioWire is the input and the output of a server. It notes when the client has gone, which is an end as it should be.
type stdioWire struct {
	in   io.Reader
	out  io.Writer
	gone atomic.Bool
}

// Read implements io.Reader.
func (w *stdioWire) Read(b []byte) (int, error) {
	n, err := w.in.Read(b)
	if err == io.EOF {
		w.gone.Store(true)
	}
	return n, err
}

// Write implements io.Writer.
func (w *stdioWire) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	if err != nil {
		w.gone.Store(true)
	}
	return n, err
}

// Close implements io.Closer: both outlive the server.
func (*stdioWire) Close() error { return nil }

// share makes a ref and writes it to a new file.
func (from *mcpSource) share(ctx context.Context, o mcpserver.ShareOptions) (id, path string, queued bool, err error) {
	rights, err := capability.ParseRights(o.Rights)
	if err != nil {
		return "", "", false, err
	}
	if path, err = filepath.Abs(o.File); err != nil {
		return "", "", false, fmt.Errorf("the file of the ref: %w", err)
	}
	s, err := from.session(ctx, o.Session)
	if err != nil {
		return "", "", false, err
	}
	file, err := cli.NewRefFile(path, false)
	if err != nil {
		return "", "", false, err
	}
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: rights, Label: o.Label, Lifetime: o.Expires})
	queued, refused, err := from.home.CommitRef(ctx, from.client, b, ref, file, "share", "the ref works as soon as it has arrived")
	if refused != nil {
		err = refused
	}
	return ref.ID, path, queued, err
}
