// The ref of a request, which is the bearer token of its Authorization header, and the limits that it has besides.

package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/tidwall/gjson"
)

// Credentials are the ref that a request shows, and its limits.
type Credentials struct {
	ref    capability.Ref
	limits *capability.MintRequest // nil for none
	header string                  // the limits' text
}

// Sum is a hash of them: what shows the same has the same.
func (c *Credentials) Sum() [sha256.Size]byte {
	return sha256.Sum256([]byte(c.ref.ID + "#" + string(c.ref.Secret.Reveal()) + "\x00" + c.header))
}

// Credentials parses the request's credentials.
func (q *Request) Credentials() (c Credentials, refused *fault.Error) {
	if c.ref, refused = bearer(q.Header); refused != nil {
		return c, refused
	}
	c.header = q.Header.Get(attenuationHeader)
	c.limits, refused = parseAttenuation(q.Header)
	return c, refused
}

// Restore restores credentials of the request. The capability is valid as long as ctx.
func (q *Request) Restore(ctx context.Context, c *Credentials) (*objects.Capability, *fault.Error) {
	live, refused := q.restore(ctx, c.ref)
	if refused != nil || c.limits == nil {
		return live, refused
	}
	return q.attenuate(live, c.limits)
}

func (q *Request) attenuate(live *objects.Capability, limits *capability.MintRequest) (*objects.Capability, *fault.Error) {
	narrow, err := live.Attenuate(q.Context(), *limits)
	if err != nil {
		return nil, ofAttenuation(q.ToFault(err))
	}
	return narrow, nil
}

// restore restores a ref, without the request's limits.
func (q *Request) restore(ctx context.Context, ref capability.Ref) (*objects.Capability, *fault.Error) {
	caller := q.api.cfg.Server.Caller(ctx, q.RemoteAddr)
	redemption, refused := redemptionID(q.Header, ref, caller)
	if refused != nil {
		return nil, refused
	}
	live, err := caller.Restore(ref, redemption)
	if err == nil {
		q.ref = cmp.Or(q.ref, live.Ref())
		return live, nil
	}
	f := q.ToFault(err)
	if f.Code == fault.Sealed {
		f = fault.Sealed.With("the ref is bound to a key, which cannot be shown over HTTP: use it with mooring or a client, or ask for a ref without a seal")
	}
	return nil, f
}

// redemptionHeader is the header of the redemption id: restores with the same id count as one
// redemption of a ref.
const redemptionHeader = "Mooring-Redemption"

// maxRedemption bounds a redemption id, in bytes.
const maxRedemption = 64

// bearer parses the ref of the Authorization header. Errors never contain any of it.
func bearer(h http.Header) (capability.Ref, *fault.Error) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return capability.Ref{}, fault.BadRefText.With("send the ref in one header: Authorization: Bearer mooring://HOST/ID#SECRET, or ID#SECRET alone")
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return capability.Ref{}, fault.BadRefText.With("the Authorization header is not Bearer REF")
	}
	return parseRef(strings.TrimSpace(text))
}

// parseRef parses a ref's text, or only its id and secret.
func parseRef(text string) (capability.Ref, *fault.Error) {
	if !strings.Contains(text, "://") {
		text = "mooring://localhost/" + text
	}
	ref, err := capability.ParseRef(text)
	if err != nil {
		return capability.Ref{}, toFault(nil, "", err)
	}
	return ref, nil
}

// redemptionID returns the request's redemption id. Without the header it is derived, so that one
// address counts once for a ref.
func redemptionID(h http.Header, ref capability.Ref, caller *objects.Caller) (string, *fault.Error) {
	values := h.Values(redemptionHeader)
	switch {
	case len(values) == 0:
	case len(values) > 1, values[0] == "", len(values[0]) > maxRedemption, strings.ContainsFunc(values[0], func(r rune) bool { return r < '!' || r > '~' }):
		return "", fault.BadArgument.With("%s is one id of 1 to %d letters, digits and signs", redemptionHeader, maxRedemption)
	default:
		return values[0], nil
	}
	sum := sha256.Sum256([]byte("mooring http redemption v1\x00" + ref.ID + "\x00" + caller.Address()))
	return "http-" + base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// attenuationHeader is the header of the limits that a request has beside its ref's.
const attenuationHeader = "Mooring-Attenuate"

// parseAttenuation parses the request's limits; nil without the header.
func parseAttenuation(h http.Header) (*capability.MintRequest, *fault.Error) {
	values := h.Values(attenuationHeader)
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > 1 || !utf8.ValidString(values[0]) || !ledger.IsJSON([]byte(values[0])) {
		return nil, fault.Malformed.With("%s is one header, and one JSON object in UTF-8", attenuationHeader)
	}
	var m capability.MintRequest
	refused := parseLimits(&bodyPath{name: attenuationHeader}, gjson.Parse(values[0]), &m)
	return &m, ofAttenuation(refused)
}

// ofAttenuation says of a refusal of the limits which those are.
func ofAttenuation(refused *fault.Error) *fault.Error {
	if refused != nil && (refused.Code == fault.BadArgument || refused.Code == fault.Widening) {
		return refused.Code.With("%s: %s", attenuationHeader, refused.Message)
	}
	return refused
}
