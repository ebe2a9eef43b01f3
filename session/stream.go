package session

// A stream's id: which stream of a session an outbox's secret opens.

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

// FallbackSep stands in a stream's id between the outbox's id and what tells its secret.
// New outbox ids have none.
const FallbackSep = "~"

// fallbackDigits is how many digits of base32 follow the mark.
const fallbackDigits = 26

// FallbackStream is the stream of an outbox whose id another has taken in the session: outbox
// ids stand in events, so whoever comes first under one proves nothing. Streams, records,
// turns and the session's creator go by this id, and events show the outbox's alone.
//
// The session is in the hash so that the id says nothing about another session's.
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

// OutboxOf is the outbox's id of a stream's id, as events and turns show it.
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

// CandidateStreams are those that an opening of key may be of: the outbox's id and its own stream.
func CandidateStreams(key StreamKey, secretHash [32]byte) []StreamKey {
	return []StreamKey{key, FallbackStream(key, secretHash)}
}

// MatchStream is the stream that a secret opens, of those of CandidateStreams that are there; nil
// with the key of a new one if it opens none. taken says that it can open none, since an id
// with a mark, which only outboxes of before have, is another's.
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

// StreamRequest is what a stream is opened with.
type StreamRequest struct {
	Key         StreamKey // of the outbox's own id
	SecretHash  [32]byte  // of the secret that it shows the session
	Incarnation uint64

	// ReadOnlyRef is the ref that it is opened under, if that can change nothing in the session;
	// MaxReadOnlyStreams is how many streams such a ref may make. What is recorded on those that are
	// there goes on: else acknowledgements would turn into server_behind, later seqs into gap.
	ReadOnlyRef        string
	MaxReadOnlyStreams int
}

// ErrReadOnlyStreams is for a stream that is not made, since its ref has made as many as one may that
// can change nothing.
var ErrReadOnlyStreams = errors.New("session: the ref has made as many streams as it may")

// AlreadyOpen says whether opening st changes nothing.
func (o *StreamRequest) AlreadyOpen(st *ledger.Stream) bool {
	return st.IsOpenBy(o.SecretHash, o.Incarnation) && (st.ReadOnlyRef == "" || o.ReadOnlyRef != "")
}

func secretMatches(st *ledger.Stream, secretHash [32]byte) bool {
	return subtle.ConstantTimeCompare(st.SecretHash[:], secretHash[:]) == 1
}
