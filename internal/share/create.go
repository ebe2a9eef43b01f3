// Creating a share: every step may be repeated by a later call, which skips the steps done.
//
//	row of the public share → session with its owner's ref → share → reader → writer
//
// The row is decided on under the space's lock, so that two equal requests at once continue with
// the same row.

package share

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

const maxCreateTries = 5 // other calls may create, or end, the share meanwhile

// createdShare is a share with a secret to write it. The secret is stored nowhere else.
type createdShare struct {
	ID     string
	Secret string
}

// errRetry is the error of a step that another call did first, or undid.
var errRetry = errors.New("another was faster")

// createShare makes a share of the session that opencode calls external, under the space ref by: a
// session of its own, a public id and a secret. Other creators who share a session of that name
// get other sessions. The same create again, from the same address under the same ref within
// Config.DedupeWindow, returns the same share unless it has ended, with another secret; earlier
// secrets stay valid, up to Config.Writers of them. via is the client address that proxies
// report, "" without proxies. Errors: Revoked and other errors of the ref by; BadArgument;
// Overloaded at the caller's rate.
func (s *Service) createShare(ctx context.Context, c *objects.Caller, by, via, external string) (*createdShare, error) {
	if err := opencode.CheckSessionID(external); err != nil {
		return nil, err
	}
	if !s.createThrottle.allow(c.Address()) {
		return nil, fault.Overloaded.With("too many shares were created from this address: try again later")
	}
	d, err := c.Assume(by).Describe(ctx)
	if err != nil {
		return nil, err
	}
	for range maxCreateTries {
		var p *capability.PublicShare
		var secret string
		if p, err = s.ensureShare(ctx, c, d.Grant, fingerprint(by, c.Address(), via, external), external); err == nil {
			secret, err = s.mintWriter(ctx, c, p)
		}
		if err == nil {
			return &createdShare{ID: p.ID, Secret: secret}, nil
		}
		if !errors.Is(err, errRetry) {
			return nil, s.toFault(ctx, err, "create the share")
		}
	}
	return nil, fault.Unavailable.Because(err, "the share is made and ended by others again and again: try later")
}

// ensureShare returns the share of a create request, with all of its refs minted.
func (s *Service) ensureShare(ctx context.Context, c *objects.Caller, by *capability.Grant, asker [32]byte, external string) (*capability.PublicShare, error) {
	p, err := s.cfg.Store.PublishShare(ctx, newShareIDs(), capability.ShareRequest{Space: by.Target, Fingerprint: asker, DedupeWindow: s.cfg.DedupeWindow})
	if err != nil {
		return nil, err
	}
	access, err := s.cfg.Store.ReadAccess(ctx, p.Session, []string{p.Share, p.Reader})
	if err != nil {
		return nil, err
	}
	if access.Row == nil || access.Row.Life == session.Absent {
		if err := s.ensureSession(ctx, c, by, p, external); err != nil {
			return nil, err
		}
	}
	return p, s.mintRefs(ctx, c, p, access.Grants)
}

// newShareIDs returns new ids for a share, its session and its refs.
func newShareIDs() capability.PublicShare {
	id := capability.SessionPrefix + ulid.Make().String()
	return capability.PublicShare{ID: capability.NewPublicID(), Session: id, Owner: capability.ServerID(id, ulid.Make()),
		Share: capability.ServerID(id, ulid.Make()), Reader: capability.ServerID(id, ulid.Make())}
}

// fingerprint returns the digest by which equal creates are recognized. Clients behind one proxy
// share its address, and are distinguished by via.
func fingerprint(by, address, via, external string) [32]byte {
	text, _ := json.Marshal([]string{by, address, via, external}) // texts always marshal
	return sha256.Sum256(text)
}

// ensureSession creates a share's session, unless another call has.
func (s *Service) ensureSession(ctx context.Context, c *objects.Caller, by *capability.Grant, p *capability.PublicShare, external string) error {
	args := []ledger.Arg{
		{Name: "ref", JSON: jsonText(p.Owner)}, {Name: "hash", JSON: jsonText(discardedHash())},
		{Name: "external", JSON: jsonText(external)}, {Name: "label", JSON: jsonText("opencode session")},
		{Name: "order", JSON: jsonText(session.ByTime.String())},
	}
	if by.Actor != "" {
		args = append(args, ledger.Arg{Name: "actor", JSON: jsonText(by.Actor)})
	}
	err := c.Assume(by.ID).CreateSharedExternalID(ctx, p.Session, p.Owner, args...)
	if errors.Is(err, fault.AlreadyExists) {
		return nil
	}
	return err
}

// mintRefs mints a share's refs that are missing in grants.
func (s *Service) mintRefs(ctx context.Context, c *objects.Caller, p *capability.PublicShare, grants map[string]*capability.Grant) error {
	for _, m := range []struct {
		from, id, label string
		rights          capability.Rights
	}{
		{p.Owner, p.Share, "opencode share", capability.SessionRights},
		{p.Share, p.Reader, "opencode readers", capability.Read},
	} {
		if grants[m.id] != nil {
			continue
		}
		err := c.Assume(m.from).Share(ctx, capability.MintRequest{ID: m.id, Hash: capability.NewSecret().Hash(), Rights: m.rights, Label: m.label})
		switch {
		case err == nil, errors.Is(err, fault.AlreadyExists): // another call minted it
		case refEnded(err):
			return errRetry
		default:
			return err
		}
	}
	return nil
}

// mintWriter mints a ref to write a share with, and returns its secret's text.
func (s *Service) mintWriter(ctx context.Context, c *objects.Caller, p *capability.PublicShare) (string, error) {
	secret, share := capability.NewSecret(), c.Assume(p.Share)
	id := capability.ServerID(p.Session, ulid.Make())
	err := share.Share(ctx, capability.MintRequest{ID: id, Hash: secret.Hash(), Rights: capability.Read | capability.Append,
		Methods: []string{session.MethodPut}, Label: "opencode writer"})
	switch {
	case refEnded(err):
		return "", errRetry
	case err != nil:
		return "", err
	}
	if err := s.revokeOldWriters(ctx, share); err != nil {
		s.cfg.Log.Warn("old secrets of a share could not be ended", "session", p.Session, "error", err)
	}
	return strings.TrimPrefix(id, p.Session+".") + "." + secret.RevealText(), nil
}

// revokeOldWriters revokes the oldest writers beyond Config.Writers.
func (s *Service) revokeOldWriters(ctx context.Context, share *objects.Capability) error {
	refs, err := s.cfg.Store.MintedFrom(ctx, share.Ref(), 4*s.liveConfig.Load().Writers)
	if err != nil {
		return err
	}
	var writers []string
	for _, g := range refs {
		if g.Rights.Has(capability.Append) {
			writers = append(writers, g.ID)
		}
	}
	for len(writers) > s.liveConfig.Load().Writers {
		if _, err := share.Revoke(ctx, writers[0], false); err != nil {
			return err
		}
		writers = writers[1:]
	}
	return nil
}

// parseWriterSecret parses a share's secret: TAIL.SECRET.
func parseWriterSecret(of, text string) (ref capability.Ref, ok bool) {
	tail, secret, _ := strings.Cut(text, ".")
	s, err := capability.ParseSecret(secret)
	id := of + "." + tail
	if err != nil || capability.Target(id) != of || capability.ClientMade(id) {
		return ref, false
	}
	return capability.Ref{ID: id, Secret: s}, true
}

// refEnded reports whether err says that the acting ref or session has ended.
func refEnded(err error) bool {
	return slices.ContainsFunc([]fault.Code{fault.Revoked, fault.StaleEpoch, fault.Expired}, func(code fault.Code) bool { return errors.Is(err, code) })
}

// discardedHash returns the hash of a discarded secret, in the format of the create op.
func discardedHash() string {
	h := capability.NewSecret().Hash()
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// jsonText returns s as JSON.
func jsonText(s string) []byte {
	b, _ := json.Marshal(s) // a text always marshals
	return b
}
