// The audit of a session or space, and its hash chain.

package httpapi

import (
	"net/http"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// auditRowJSON is a row of an audit, with all that its hash covers but the target.
type auditRowJSON struct {
	Seq     uint64 `json:"seq"`
	At      int64  `json:"at"`
	Act     string `json:"act"`
	Ref     string `json:"ref,omitempty"`
	Actor   string `json:"actor,omitempty"`
	Subject string `json:"subject,omitempty"`
	Reason  string `json:"reason,omitempty"` // the code of the refusal
	Op      string `json:"op,omitempty"`
	Cursor  uint64 `json:"cursor,omitempty"`
	Count   uint32 `json:"count"`
	Peer    string `json:"peer,omitempty"`
	Hash    string `json:"hash"`
}

func newAuditRowJSON(r *capability.AuditRow) auditRowJSON {
	shown := auditRowJSON{Seq: r.Seq, At: r.At, Act: r.Act.String(), Ref: r.Ref, Actor: r.Actor, Subject: r.Subject, Op: r.Op,
		Cursor: r.Cursor, Count: r.Count, Peer: r.Peer, Hash: session.Hash(r.Hash).String()}
	if r.Reason != fault.None {
		shown.Reason = r.Reason.String()
	}
	return shown
}

// audit serves GET on audit, of a session or a space.
func audit(q *Request, live *objects.Capability) *fault.Error {
	params := q.params("after", "limit")
	after, limit := params.uint("after", 0), params.limit()
	if params.refused != nil {
		return params.refused
	}
	page, err := live.Audit(q.Context(), after, limit)
	if err != nil {
		return q.ToFault(err)
	}
	rows := make([]auditRowJSON, len(page.Rows))
	for i, row := range page.Rows {
		rows[i] = newAuditRowJSON(row)
		after = row.Seq
	}
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(struct {
		Seq   uint64         `json:"seq"`
		Head  string         `json:"head"` // the hash of that row
		After uint64         `json:"after"`
		More  bool           `json:"more"`
		Rows  []auditRowJSON `json:"rows"`
	}{page.Seq, hashJSON(page.Head), after, after < page.Seq, rows}))
	return nil
}
