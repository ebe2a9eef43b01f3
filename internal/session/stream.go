package session

// Ids of streams: the stream of a session that an outbox's secret gives access to.

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/mooring-rpc/mooring/ledger"
)

// StreamKey names a stream. Outbox is the stream's id: the outbox's own, or FallbackStream's.
type StreamKey struct{ Session, Outbox string }

// FallbackSep separates the outbox's id from the digest of its secret in the id of a fallback
// stream. New outbox ids do not contain it.
const FallbackSep = "~"

// fallbackDigits is the number of base32 digits after FallbackSep.
const fallbackDigits = 26

// FallbackStream returns the stream of an outbox whose id another outbox has used in the session:
// outbox ids are visible in events, so being the first with one proves nothing. Streams, records,
// turns and the session's creator use this id; events show the outbox's alone.
//
// The session is part of the digest so that the id reveals nothing about another session's.
func FallbackStream(key StreamKey, secretHash [32]byte) StreamKey {
	h := sha256.New()
	for _, s := range []string{"mooring own stream v1", key.Session, key.Outbox} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	h.Write(secretHash[:])
	own := base32.StdEncoding.EncodeToString(h.Sum(nil))[:fallbackDigits]
	return StreamKey{key.Session, key.Outbox + FallbackSep + own}
}

// OutboxOf returns the outbox's id of a stream's id, as events and turns show it.
func OutboxOf(stream string) string {
	outbox, own, marked := cutLast(stream, FallbackSep)
	if !marked || len(own) != fallbackDigits || strings.Trim(own, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return stream
	}
	return outbox
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// CandidateStreams returns the streams that an opening of key may refer to: the one with the
// outbox's id, and its fallback.
func CandidateStreams(key StreamKey, secretHash [32]byte) []StreamKey {
	return []StreamKey{key, FallbackStream(key, secretHash)}
}

// MatchStream returns the stream that a secret gives access to, of the existing CandidateStreams;
// nil with the key of a new one if there is none. taken reports that no stream can be used: an id
// with FallbackSep, which only outboxes of earlier versions have, belongs to another outbox.
func MatchStream(key StreamKey, secretHash [32]byte, rows map[StreamKey]*ledger.Stream) (at StreamKey, stream *ledger.Stream, taken bool) {
	if first := rows[key]; first == nil || secretMatches(first, secretHash) {
		return key, first, false
	}
	own := FallbackStream(key, secretHash)
	mine := rows[own]
	if strings.Contains(key.Outbox, FallbackSep) || mine != nil && !secretMatches(mine, secretHash) {
		return key, nil, true
	}
	return own, mine, false
}

// StreamRequest is a request to open a stream.
type StreamRequest struct {
	Key         StreamKey // with the outbox's own id
	SecretHash  [32]byte  // of the secret shown to the session
	Incarnation uint64

	// ReadOnlyRef is the ref that the stream is opened under, if it has no write right in the
	// session; MaxReadOnlyStreams is how many streams such a ref may create. Existing ones are
	// still recorded on: otherwise acknowledgements would turn into server_behind, later seqs into
	// gap.
	ReadOnlyRef        string
	MaxReadOnlyStreams int

	// Decide, if not nil, decides on the session's row, the grants of Refs and the streams of
	// CandidateStreams, under the session's lock. It may set ReadOnlyRef; an error refuses the request.
	Decide func(o *StreamRequest, at *Access, streams map[StreamKey]*ledger.Stream) error
	Refs   []string
}

// ErrReadOnlyStreams is returned when a stream is not created because its ref, which has no write
// right, has created MaxReadOnlyStreams already.
var ErrReadOnlyStreams = errors.New("session: the ref has made as many streams as it may")

// AlreadyOpen reports whether opening st changes nothing.
func (o *StreamRequest) AlreadyOpen(st *ledger.Stream) bool {
	return st.IsOpenBy(o.SecretHash, o.Incarnation) && (st.ReadOnlyRef == "" || o.ReadOnlyRef != "")
}

func secretMatches(st *ledger.Stream, secretHash [32]byte) bool {
	return subtle.ConstantTimeCompare(st.SecretHash[:], secretHash[:]) == 1
}

// Forgotten returns the stream to answer an opening in a forgotten session with. It claims that
// every seq is recorded, so that no outbox concludes that an op never arrived, or that the server
// has lost records. It has no row.
func (o *StreamRequest) Forgotten() *ledger.Stream {
	const last = 1<<53 - 1 // exact in JavaScript, too
	return &ledger.Stream{Session: o.Key.Session, Outbox: o.Key.Outbox, SecretHash: o.SecretHash, Incarnation: o.Incarnation, LastSeq: last}
}
