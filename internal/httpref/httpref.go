// Package httpref restores the ref of a request over HTTP, which is the bearer token of its Authorization header. It is the
// same for every handler that takes one.
package httpref

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// RedemptionHeader is the header of the redemption id: restores with the same id count as one
// redemption of a ref.
const RedemptionHeader = "Mooring-Redemption"

// maxRedemption bounds a redemption id, in bytes.
const maxRedemption = 64

// Bearer parses the ref of the Authorization header. Errors never contain any of it.
func Bearer(h http.Header) (capability.Ref, *fault.Error) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return capability.Ref{}, fault.BadRefText.With("send the ref in one header: Authorization: Bearer mooring://HOST/ID#SECRET, or ID#SECRET alone")
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return capability.Ref{}, fault.BadRefText.With("the Authorization header is not Bearer REF")
	}
	return Parse(strings.TrimSpace(text))
}

// Parse parses a ref's text, or only its id and secret.
func Parse(text string) (capability.Ref, *fault.Error) {
	if !strings.Contains(text, "://") {
		text = "mooring://localhost/" + text
	}
	ref, err := capability.ParseRef(text)
	if err != nil {
		return capability.Ref{}, fault.From(nil, err, "parse the ref")
	}
	return ref, nil
}

// Restore redeems a ref for a request with these headers. The capability is valid as long as the caller's context. The
// error is a fault, as Caller.Restore returns it.
func Restore(caller *objects.Caller, ref capability.Ref, h http.Header) (*objects.Capability, error) {
	redemption, refused := redemptionID(h, ref, caller)
	if refused != nil {
		return nil, refused
	}
	live, err := caller.Restore(ref, redemption)
	if fault.CodeOf(err) == fault.Sealed {
		err = fault.Sealed.With("the ref is bound to a key, which cannot be shown over HTTP: use it with mooring or a client, or ask for a ref without a seal")
	}
	return live, err
}

// redemptionID returns the request's redemption id. Without the header it is derived, so that one
// address counts once for a ref.
func redemptionID(h http.Header, ref capability.Ref, caller *objects.Caller) (string, *fault.Error) {
	values := h.Values(RedemptionHeader)
	switch {
	case len(values) == 0:
	case len(values) > 1, values[0] == "", len(values[0]) > maxRedemption, strings.ContainsFunc(values[0], func(r rune) bool { return r < '!' || r > '~' }):
		return "", fault.BadArgument.With("%s is one id of 1 to %d letters, digits and signs", RedemptionHeader, maxRedemption)
	default:
		return values[0], nil
	}
	sum := sha256.Sum256([]byte("mooring http redemption v1\x00" + ref.ID + "\x00" + caller.Address()))
	return "http-" + base64.RawURLEncoding.EncodeToString(sum[:]), nil
}
