// Refs: listing those below a request's ref, minting from it, revoking, and rotating it.

package httpapi

import (
	"math"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// refJSON is a ref of a tree.
type refJSON struct {
	grantJSON
	Parent    string `json:"parent,omitempty"`
	Created   int64  `json:"created"`
	LastUsed  int64  `json:"last_used,omitempty"`
	Uses      uint64 `json:"uses"`
	Sealed    bool   `json:"sealed,omitempty"`
	Dead      string `json:"dead,omitempty"` // the code it fails with
	Cut       uint64 `json:"cut,omitempty"`
	Revoked   int64  `json:"revoked,omitempty"`
	RevokedBy string `json:"revoked_by,omitempty"`
}

func newRefJSON(r *session.TreeRow, now int64) refJSON {
	shown := refJSON{grantJSON: newGrantJSON(r.Grant), Parent: r.Grant.Parent, Created: r.Grant.Created, LastUsed: r.LastUsed, Uses: r.Uses,
		Sealed: len(r.Grant.Seal) > 0, Cut: r.Grant.Cut, Revoked: r.Grant.Revoked, RevokedBy: r.Grant.RevokedBy}
	if dead := capability.Check(r.Grant, r.Epoch, now, 0, ""); dead != nil {
		shown.Dead = dead.Code.String()
	}
	return shown
}

// listRefs serves GET on refs, of a session or a space.
func listRefs(q *Request, live *objects.Capability) *fault.Error {
	params := q.params("under", "after", "limit")
	tree := session.TreeQuery{Under: params.values["under"], After: params.values["after"], Limit: params.limit()}
	if params.refused != nil {
		return params.refused
	}
	page, err := live.Refs(q.Context(), tree)
	if err != nil {
		return q.ToFault(err)
	}
	shown := make([]refJSON, len(page.Rows))
	for i := range page.Rows {
		shown[i] = newRefJSON(&page.Rows[i], page.Now)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(struct {
		Refs []refJSON `json:"refs"`
		More bool      `json:"more"`
		Next string    `json:"next,omitempty"`
	}{shown, page.Next != "", page.Next}))
	return nil
}

// share serves POST on refs, of a session or a space.
func share(q *Request, live *objects.Capability) *fault.Error {
	body, refused := q.ReadBody()
	if refused != nil {
		return refused
	}
	m, refused := parseMintRequest(body)
	if refused != nil {
		return refused
	}
	made := q.mintUnlessNamed(live, &m.ID, &m.Hash, m.Seal != nil)
	if err := live.Share(q.Context(), m); err != nil {
		return q.ToFault(err)
	}
	q.answerMinted(newMintedJSON(m.ID, made))
	return nil
}

// mintUnlessNamed makes a ref of live's target, and sets its id and the hash of its secret, if the
// client has made none. Else the ref it returns is zero.
func (q *Request) mintUnlessNamed(live *objects.Capability, id *string, hash *[32]byte, sealed bool) (made capability.Ref) {
	if *id != "" {
		return made
	}
	made = q.api.cfg.Address.New(live.Target())
	if sealed {
		made = q.api.cfg.Address.NewSealed(live.Target())
	}
	*id, *hash = made.ID, made.Secret.Hash()
	return made
}

// checkNamed checks the id and hash of a ref that the client has made, or has not.
func checkNamed(id string, hash []byte) *fault.Error {
	switch {
	case (id == "") != (hash == nil):
		return fault.Malformed.With("ref and hash go together: the client makes both, or neither")
	case id == "":
		return nil
	}
	return capability.CheckClientMade(id)
}

// parseMintRequest parses the arguments of the op share. Without ref and hash the server mints
// the secret.
func parseMintRequest(body gjson.Result) (m capability.MintRequest, refused *fault.Error) {
	var hash []byte
	var redemptions uint64
	refused = parseLimits(nil, body, &m, text("ref", &m.ID), bytes32("hash", &hash), number("redemptions", &redemptions), bytes32("seal", &m.Seal))
	if refused == nil {
		refused = checkNamed(m.ID, hash)
	}
	copy(m.Hash[:], hash)
	m.MaxRedemptions = uint32(min(redemptions, math.MaxUint32))
	return m, refused
}

// parseLimits parses what a ref is to allow, and others.
func parseLimits(at *bodyPath, v gjson.Result, m *capability.MintRequest, others ...member) (refused *fault.Error) {
	var rights, children []string
	var expires uint64
	refused = parseObject(at, v, append(others, texts("rights", maxListLen, &rights), texts("children", maxListLen, &children), texts("methods", maxListLen, &m.Methods),
		number("expires_at", &expires), number("expires_in", &m.Lifetime), number("from", &m.VisibleFrom), text("message", &m.Message),
		texts("read_keys", maxListLen, &m.ReadKeys), texts("write_keys", maxListLen, &m.WriteKeys), texts("ask", maxListLen, &m.AskKinds), texts("answer", maxListLen, &m.AnswerKinds), text("label", &m.Label), text("actor", &m.Actor))...)
	switch {
	case refused != nil:
		return refused
	case expires > math.MaxInt64:
		return fault.BadArgument.With("expires_at is Unix milliseconds")
	}
	m.Expires = int64(expires)
	for _, named := range []struct {
		names []string
		to    *capability.Rights
	}{{rights, &m.Rights}, {children, &m.Children}} {
		if named.names == nil {
			continue
		}
		var err error
		if *named.to, err = capability.RightsNamed(named.names); err != nil {
			return toFault(nil, "", err)
		}
	}
	return nil
}

// revokeRef serves DELETE /sessions/{id}/refs/{ref_id}.
func revokeRef(q *Request, live *objects.Capability) *fault.Error {
	params := q.params("take_over")
	takeOver := params.bool("take_over")
	if params.refused != nil {
		return params.refused
	}
	id := q.PathValue("ref_id")
	if capability.Target(id) != live.Target() {
		return fault.NotFound.With("the path names no ref of this session: give the id, without the secret")
	}
	done, err := live.Revoke(q.Context(), id, takeOver)
	if err != nil {
		return q.ToFault(err)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(struct {
		Cut           uint64            `json:"cut"`
		Children      []decide.ChildCut `json:"children,omitempty"`
		ChildrenCount int               `json:"children_count,omitempty"`
	}{done.Cut, done.Children, done.ChildrenCount}))
	return nil
}

// revokeSpaceRef serves DELETE /spaces/{id}/refs/{ref_id}, which may be a ref of a session below.
func revokeSpaceRef(q *Request, live *objects.Capability) *fault.Error {
	died, err := live.RevokeInSpace(q.Context(), q.PathValue("ref_id"))
	if err != nil {
		return q.ToFault(err)
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(map[string]any{"refs": died}))
	return nil
}

// rotate serves POST on rotate, of a session or a space.
func rotate(q *Request, live *objects.Capability) *fault.Error {
	body, refused := q.ReadBody()
	if refused != nil {
		return refused
	}
	var to decide.Rotation
	var hash []byte
	takeOver := false
	members := []member{text("ref", &to.ID), bytes32("hash", &hash)}
	if !live.IsSpace() {
		members = append(members, boolean("take_over", &takeOver))
	}
	refused = parseObject(nil, body, members...)
	if refused == nil {
		refused = checkNamed(to.ID, hash)
	}
	if refused != nil {
		return refused
	}
	copy(to.Hash[:], hash)
	made := q.mintUnlessNamed(live, &to.ID, &to.Hash, false)
	cut, err := live.Rotate(q.Context(), to, takeOver)
	if err != nil {
		return q.ToFault(err)
	}
	shown := newMintedJSON(to.ID, made)
	if !live.IsSpace() {
		shown.Cut = &cut
	}
	q.answerMinted(shown)
	return nil
}

// serveDescription serves GET /openapi.json, without a ref.
func serveDescription(q *Request) *fault.Error {
	httpkit.WriteCompressedJSON(q.W, q.Request, http.StatusOK, description)
	return nil
}
