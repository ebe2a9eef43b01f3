// mooring redeem: describes what a ref allows.

package refcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/humantime"
	"github.com/mooring-rpc/mooring/outbox"
)

// Redeem returns the command mooring redeem.
func Redeem(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redeem REF",
		Short: "Redeem a ref and print what it allows",
		Long: "Redeem a ref and print what it allows, for how long, at which epoch and cursor. A valid ref\n" +
			"is stored in the home folder: from then on its session's id can stand for it.\n\n" + home.RefHelp,
		Example: "  mooring redeem @reader.ref\n  mooring redeem 'mooring://127.0.0.1:7600/ses_…#…'",
		Args:    cli.ArgCount(1, 1),
	}
	h := home.AddFlags(env, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			ref, id, err := h.Ref(ctx, args[0])
			if id != "" {
				var saved outbox.SavedRef
				saved, err = h.SavedRef(ctx, c.Outbox(), id, 0)
				ref = saved.Ref
			}
			if err != nil {
				return err
			}
			d, err := c.Redeem(ctx, ref)
			if err != nil {
				return err
			}
			return printRedeemed(h, d)
		})
	}
	h.CompleteRefs(cmd)
	return cmd
}

// Grant is a ref's grant as printed.
type Grant struct {
	Ref            string   `json:"ref"`
	Target         string   `json:"target"`
	Owner          bool     `json:"owner"`
	Rights         []string `json:"rights"`
	Children       []string `json:"children,omitempty"`
	Methods        []string `json:"methods,omitempty"`
	Epoch          uint64   `json:"epoch,omitempty"`
	Expires        int64    `json:"expires,omitempty"` // Unix ms
	From           uint64   `json:"from,omitempty"`
	Message        string   `json:"message,omitempty"`
	ReadKeys       []string `json:"read_keys,omitempty"`
	WriteKeys      []string `json:"write_keys,omitempty"`
	AskKinds       []string `json:"ask,omitempty"`
	AnswerKinds    []string `json:"answer,omitempty"`
	MaxRedemptions uint32   `json:"limit,omitempty"`
	Redemptions    uint32   `json:"used,omitempty"`
	Label          string   `json:"label,omitempty"`
	Actor          string   `json:"actor,omitempty"`
	Seal           string   `json:"seal,omitempty"` // the key it is bound to
	Dead           string   `json:"dead,omitempty"`
	Cut            uint64   `json:"cut,omitempty"`
}

// ShowGrant returns the grant of a description, as redeem and session show print it.
func ShowGrant(d client.Description) Grant {
	g := d.Grant
	s := Grant{
		Ref: g.Ref, Target: g.Target, Owner: g.Owner, Rights: g.Rights.Names(), Methods: g.Methods, Epoch: g.Epoch,
		Expires: cli.UnixMs(g.Expires), From: g.From, Message: g.Message, ReadKeys: g.ReadKeys, WriteKeys: g.WriteKeys, AskKinds: g.AskKinds, AnswerKinds: g.AnswerKinds, MaxRedemptions: g.MaxRedemptions, Redemptions: g.Redemptions, Label: g.Label, Actor: g.Actor, Cut: g.Cut,
	}
	if g.Children != 0 {
		s.Children = g.Children.Names()
	}
	if g.Seal != nil {
		s.Seal = capability.SealKeyText(g.Seal)
	}
	if g.Dead != fault.None {
		s.Dead = g.Dead.String()
	}
	return s
}

// Text returns the grant on one line.
func (g *Grant) Text() string {
	s := strings.Join(g.Rights, ",")
	if g.Owner {
		s += " (owner)"
	}
	if g.Dead != "" {
		s = g.Dead
	}
	return s
}

// shownRedeem is the output of redeem.
type shownRedeem struct {
	Grant
	SessionEpoch  uint64 `json:"session_epoch,omitempty"`
	SessionCursor uint64 `json:"session_cursor,omitempty"`
	Now           int64  `json:"now"`
}

func printRedeemed(h *home.Folder, d client.Description) error {
	g := ShowGrant(d)
	if h.Env.JSON {
		if err := h.Env.PrintJSON(shownRedeem{g, d.Session.Epoch, d.Session.Cursor, cli.UnixMs(d.Now)}); err != nil {
			return err
		}
		return home.DeadError(d)
	}
	rows := [][]string{{"ref", g.Ref}}
	add := func(name, value string) { rows = append(rows, []string{name, value}) }
	if g.Dead != "" {
		add("allows", "nothing: "+g.Dead)
		add("label", cli.OrDash(cli.ClipLine(g.Label)))
		add("actor", cli.OrDash(cli.ClipLine(g.Actor)))
		return errors.Join(cli.WriteTable(h.Env.Out, rows), home.DeadError(d))
	}
	add("allows", strings.Join(g.Rights, ","))
	if len(g.Methods) > 0 {
		add("methods", strings.Join(g.Methods, ","))
	}
	add("expires", formatExpiry(d.Grant.Expires, d.Now))
	switch {
	case g.Owner:
		add("epoch", "none: an owner's ref")
	case capability.IsSession(g.Target):
		add("epoch", fmt.Sprintf("%d, the session is at %d", g.Epoch, d.Session.Epoch))
	}
	if capability.IsSession(g.Target) {
		add("cursor", strconv.FormatUint(d.Session.Cursor, 10))
	}
	if g.From > 1 {
		add("from", fmt.Sprintf("cursor %d", g.From))
	}
	if g.Message != "" {
		add("message", g.Message+" alone")
	}
	if len(g.ReadKeys) > 0 {
		add("reads", capability.KeysText(g.ReadKeys)+" alone")
	}
	if len(g.WriteKeys) > 0 {
		add("writes", capability.KeysText(g.WriteKeys)+" alone")
	}
	if len(g.AskKinds) > 0 {
		add("asks", capability.KindsText(g.AskKinds)+" alone")
	}
	if len(g.AnswerKinds) > 0 {
		add("answers", capability.KindsText(g.AnswerKinds)+" alone")
	}
	if len(g.Children) > 0 {
		add("in children", strings.Join(g.Children, ","))
	}
	if g.MaxRedemptions > 0 {
		add("redeemed", fmt.Sprintf("%d of %s", g.Redemptions, cli.Plural(int(g.MaxRedemptions), "time")))
	}
	if g.Seal != "" {
		add("sealed", "yes, to "+g.Seal)
	}
	add("label", cli.OrDash(cli.ClipLine(g.Label)))
	add("actor", cli.OrDash(cli.ClipLine(g.Actor)))
	return cli.WriteTable(h.Env.Out, rows)
}

// formatExpiry formats a time and the duration until then, by the server's clock.
func formatExpiry(at, now time.Time) string {
	if at.IsZero() {
		return "never"
	}
	left := at.Sub(now)
	if left <= 0 {
		return cli.FormatTime(at) + " (past)"
	}
	return fmt.Sprintf("%s (in %s)", cli.FormatTime(at), humantime.Duration(left))
}
