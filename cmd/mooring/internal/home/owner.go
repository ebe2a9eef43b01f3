// The owner's ref of a command: named by the user, or the one used last.

package home

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// OwnerArg returns the REF named as owner, and where it was named; "" if none was.
func (h *Folder) OwnerArg(flag string) (arg, from string) {
	if flag != "" {
		return flag, "--owner"
	}
	return os.Getenv("MOORING_OWNER"), "MOORING_OWNER"
}

// Owner returns the space ref for a command that needs the right want. One named by the user is remembered when the
// command has succeeded.
func (h *Folder) Owner(ctx context.Context, c *client.Client, flag string, want capability.Rights) (*client.Space, error) {
	arg, from := h.OwnerArg(flag)
	if arg == "" {
		return h.rememberedOwner(ctx, c, want)
	}
	sp, err := h.Space(ctx, c, arg, from, want)
	if err == nil {
		h.ownerUsed = sp.Ref().ID
	}
	return sp, err
}

// Space returns the space ref that the user named in a flag or variable, from, for a command that needs the right want.
func (h *Folder) Space(ctx context.Context, c *client.Client, arg, from string, want capability.Rights) (*client.Space, error) {
	ref, id, err := h.Ref(ctx, arg)
	switch {
	case err != nil:
		return nil, err
	case capability.IsSpace(id) || capability.IsSpace(capability.Target(id)):
		saved, err := h.SavedRef(ctx, c.Outbox(), id, want)
		if err != nil {
			return nil, err
		}
		ref = saved.Ref
	case id != "":
		return nil, fault.Usage.With("%s must be a space's ref: its text, @FILE such as @DATA/owner.ref, or the id of one that the home folder knows", from)
	}
	return c.Space(ctx, ref)
}

// rememberedOwner returns the space ref last used, or another one of the same space if that lacks the right; without a
// remembered one the best match, if all are of one space.
func (h *Folder) rememberedOwner(ctx context.Context, c *client.Client, want capability.Rights) (*client.Space, error) {
	name, err := h.ownerFile()
	if err != nil {
		return nil, err
	}
	space := ""
	last, _ := os.ReadFile(name) // missing: none was remembered
	if saved, err := c.Outbox().Ref(ctx, strings.TrimSpace(string(last))); err == nil && saved.Role == outbox.SpaceOwner {
		if saved.Rights == 0 || saved.Rights.Has(want) {
			return c.Space(ctx, saved.Ref) // or the ref that replaced it
		}
		space = saved.Target()
	}
	saved, err := c.Outbox().RefFor(ctx, space, want)
	switch fault.CodeOf(err) {
	case fault.None:
		return c.Space(ctx, saved.Ref)
	case fault.Ambiguous:
		return nil, fault.Ambiguous.With("the home folder knows owner's refs of more than one space: say which with --owner @FILE")
	case fault.NotFound:
		return nil, fault.Usage.With("no owner's ref is known: give it once with --owner @FILE or MOORING_OWNER; mooring serve prints where it wrote it")
	}
	return nil, fmt.Errorf("look up the owner's ref: %w", err)
}

// RememberOwner records that the owner's ref in use, if there is one, was used last.
func (h *Folder) RememberOwner() error { return h.writeOwner(h.ownerUsed) }

// writeOwner records which owner's ref was used last: its id, never its secret. "" is none.
func (h *Folder) writeOwner(id string) error {
	if id == "" {
		return nil
	}
	name, err := h.ownerFile()
	if err != nil {
		return err
	}
	if last, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(last)) == id {
		return nil
	}
	if err := os.WriteFile(name, []byte(id+"\n"), 0o600); err != nil {
		return fmt.Errorf("remember the owner: %w", err)
	}
	return nil
}

func (h *Folder) ownerFile() (string, error) {
	dir, err := h.MakeDir()
	return filepath.Join(dir, "owner"), err
}

// ReplaceOwner makes the home remember the new ref if it remembered the old one.
func (h *Folder) ReplaceOwner(old, fresh string) error {
	name, err := h.ownerFile()
	if err != nil {
		return err
	}
	if last, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(last)) != old {
		return nil // another one, or none, is remembered
	}
	return h.writeOwner(fresh)
}
