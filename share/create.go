// Making a share: every step is found done or undone by whoever comes next.
//
//	row of the public share → session with its owner's ref → share → reader → writer
//
// The row is decided on under the space's lock, so that a request that comes twice
// at once goes on with the same one.

package share

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/session"
)

const (
	maxSessionID   = 256 // bytes of opencode's id of a session
	maxCreateTries = 5   // others may make, or end, the share meanwhile
)

// Created is a share with a secret to write it. The secret is nowhere else.
type Created struct {
	ID     string
	Secret string
}

// errRetry is for a step that somebody else was faster with, or took back.
var errRetry = errors.New("another was faster")

// Create makes a share of the session that opencode calls external, under the space
// ref by: a session of its own, a public id and a secret. Whoever else shares a
// session of that name, has shared it before or will, makes another. The same create
// again, from the same address under the same ref within Config.DedupeWindow, gives the same
// share, unless that is over, with another secret; those given before stay good, up to
// Config.Writers of them. via is what proxies say of the address, "" without one.
// Errors: Revoked and the like of the ref by; BadArgument;
// Overloaded at the caller's rate.
func (s *Service) Create(ctx context.Context, c *server.Caller, by, via, external string) (*Created, error) {
	if external == "" || len(external) > maxSessionID || !utf8.ValidString(external) || strings.ContainsFunc(external, unicode.IsControl) {
		return nil, fault.BadArgument.With("sessionID is the session's id: 1 to %d bytes of text", maxSessionID)
	}
	if !s.createThrottle.allow(c.Address()) {
		return nil, fault.Overloaded.With("too many shares are created from this address: wait a little")
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
			return &Created{ID: p.ID, Secret: secret}, nil
		}
		if !errors.Is(err, errRetry) {
			return nil, s.toFault(ctx, err, "create the share")
		}
	}
	return nil, fault.Unavailable.Because(err, "the share is made and ended by others again and again: try later")
}

// ensureShare is the share that a create is for, with all of its refs.
func (s *Service) ensureShare(ctx context.Context, c *server.Caller, by *capability.Grant, asker [32]byte, external string) (*capability.PublicShare, error) {
	p, err := s.cfg.Store.PublishShare(ctx, newShareIDs(), capability.ShareRequest{Space: by.Target, Fingerprint: asker, DedupeWindow: s.cfg.DedupeWindow})
	if err != nil {
		return nil, err
	}
	sight, err := s.cfg.Store.ReadAccess(ctx, p.Session, []string{p.Share, p.Reader})
	if err != nil {
		return nil, err
	}
	if sight.Row == nil || sight.Row.Life == session.Absent {
		if err := s.ensureSession(ctx, c, by, p, external); err != nil {
			return nil, err
		}
	}
	return p, s.mintRefs(ctx, c, p, sight.Grants)
}

// newShareIDs gives everything of a share its name.
func newShareIDs() capability.PublicShare {
	id := capability.SessionPrefix + ulid.Make().String()
	return capability.PublicShare{ID: newPublicID(), Session: id, Owner: capability.ServerID(id, ulid.Make()),
		Share: capability.ServerID(id, ulid.Make()), Reader: capability.ServerID(id, ulid.Make())}
}

// fingerprint is the digest of what makes a create the same as another. Behind one proxy
// all have its address, and are told apart by what it says of theirs.
func fingerprint(by, address, via, external string) [32]byte {
	text, _ := json.Marshal([]string{by, address, via, external}) // texts always marshal
	return sha256.Sum256(text)
}

// ensureSession makes a share's session, unless another has by now.
func (s *Service) ensureSession(ctx context.Context, c *server.Caller, by *capability.Grant, p *capability.PublicShare, external string) error {
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

// mintRefs mints those of a share's refs that are not among grants.
func (s *Service) mintRefs(ctx context.Context, c *server.Caller, p *capability.PublicShare, grants map[string]*capability.Grant) error {
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
		case err == nil, errors.Is(err, fault.AlreadyExists): // another create minted it
		case refEnded(err):
			return errRetry
		default:
			return err
		}
	}
	return nil
}

// mintWriter mints a ref to write a share with, and gives its secret in text.
func (s *Service) mintWriter(ctx context.Context, c *server.Caller, p *capability.PublicShare) (string, error) {
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

// revokeOldWriters revokes those above the bound.
func (s *Service) revokeOldWriters(ctx context.Context, share *server.Capability) error {
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
		if _, err := share.Revoke(ctx, writers[0]); err != nil {
			return err
		}
		writers = writers[1:]
	}
	return nil
}

// parseWriterSecret reads a share's secret: TAIL.SECRET.
func parseWriterSecret(of, text string) (ref capability.Ref, ok bool) {
	tail, secret, _ := strings.Cut(text, ".")
	s, err := capability.ParseSecret(secret)
	id := of + "." + tail
	if err != nil || capability.Target(id) != of || capability.ClientMade(id) {
		return ref, false
	}
	return capability.Ref{ID: id, Secret: s}, true
}

// refEnded says whether err is that what was acted under is over.
func refEnded(err error) bool {
	for _, code := range []fault.Code{fault.Revoked, fault.StaleEpoch, fault.Expired} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// discardedHash is the hash of a secret that nobody has, as the op create takes it.
func discardedHash() string {
	h := capability.NewSecret().Hash()
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// jsonText is a text as JSON.
func jsonText(s string) []byte {
	b, _ := json.Marshal(s) // a text always marshals
	return b
}
