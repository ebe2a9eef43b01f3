// Ids and rows for tests.

package harness

import (
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// NewSession is an id of no other session.
func NewSession() string { return capability.SessionPrefix + ulid.Make().String() }

// NewSpace is an id of no other space.
func NewSpace() string { return capability.SpacePrefix + ulid.Make().String() }

// NewOutbox is an id of no other outbox.
func NewOutbox() string { return "obx_" + ulid.Make().String() }

// NewOp is an id of no other op or batch.
func NewOp() string { return ulid.Make().String() }

// NewRef is the id of a ref as a server makes it: later ones sort behind earlier ones.
func NewRef(target string) string {
	return capability.ServerID(target, ulid.Make())
}

// ClientRef is the id of a ref as an op may name it.
func ClientRef(target string) string {
	return capability.DeriveID(target, capability.NewSecret())
}

var counter atomic.Uint64

// Hash is some hash that is no other's.
func Hash() (h [32]byte) {
	return sha256.Sum256(fmt.Appendf(nil, "hash %d", counter.Add(1)))
}

// LiveRow is a session's row as after n events.
func LiveRow(id, space string, cursor uint64) *session.Row {
	return &session.Row{ID: id, Space: space, Life: session.Live, Cursor: cursor, Head: Hash(), Epoch: 1, AuthGen: 1,
		Created: 1000, Updated: 2000, Creator: NewOutbox()}
}

// Event is a put of key at cursor.
func Event(id string, cursor uint64, key, payload string) *session.Event {
	return &session.Event{Session: id, Cursor: cursor, Method: session.MethodPut, Key: key, Schema: 1, Payload: []byte(payload),
		Sum: session.SumOf([]byte(payload)), Hash: Hash(), Ref: NewRef(id), Actor: "owner/a", Outbox: NewOutbox(), Op: NewOp(),
		Batch: NewOp(), At: 1234}
}

// DeltaEvent is an appendText to key at cursor.
func DeltaEvent(id string, cursor uint64, key, text string) *session.Event {
	e := Event(id, cursor, key, fmt.Sprintf(`{"offset":0,"text":%q}`, text))
	e.Method = session.MethodAppendText
	return e
}

// EntryOf is the entry that an event puts.
func EntryOf(e *session.Event) *session.Entry {
	return &session.Entry{Session: e.Session, Key: e.Key, Cursor: e.Cursor, Since: e.Cursor, Ord: session.Ord{At: e.Cursor}, Schema: e.Schema, Sum: e.Sum}
}

// Grant is a ref that may read and append.
func Grant(id, parent string) *capability.Grant {
	return &capability.Grant{ID: id, Target: capability.Target(id), Parent: parent, Hash: Hash(), Epoch: 1,
		Rights: capability.Read | capability.Append, Created: 5, Label: "label", Actor: "owner/b"}
}

// Record is what is recorded of ops that were applied, the first at cursor and seq first.
func Record(first uint64, ops ...string) *ledger.Record {
	r := &ledger.Record{BatchID: NewOp(), FirstSeq: first}
	for i, op := range ops {
		r.Outcomes = append(r.Outcomes, ledger.Outcome{OpID: op, Digest: Hash(), Status: ledger.Applied,
			Cursor: first + uint64(i), Result: []byte(`{"cursor":1}`)})
	}
	return r
}

// NewIdempotencyKey is the first of a new writer.
func NewIdempotencyKey() capability.IdempotencyKey {
	return capability.IdempotencyKey{Writer: NewOp(), Seq: 1}
}

// Asking is a request for a share that nobody has made before.
func Asking() capability.ShareRequest {
	return capability.ShareRequest{Space: NewSpace(), Fingerprint: Hash(), DedupeWindow: time.Minute}
}

// NewPublicShare is a public share of a session, with refs that nobody has.
func NewPublicShare(id string) capability.PublicShare {
	return capability.PublicShare{ID: "pub-" + NewOp(), Session: id, Owner: NewRef(id), Share: NewRef(id), Reader: NewRef(id)}
}
