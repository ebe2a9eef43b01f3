// Streams and outcome records: statements and scans.

package txn

import (
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/ledger"
)

const (
	streamColumns = `m.session, m.outbox, m.incarnation, m.last_seq, m.acked_through, m.acked_op, m.acked_digest, m.secret_hash, m.idle_ref`
	recordColumns = `r.session, r.outbox, r.outcomes`
)

var (
	ReadStreams = dialect.Both("tt", `
		SELECT `+streamColumns+` FROM {w} CROSS JOIN streams m WHERE m.session = w.a AND m.outbox = w.b`)

	saveStreams = dialect.Both("ttiiitbbt", `
		INSERT INTO streams (session, outbox, incarnation, last_seq, acked_through, acked_op, acked_digest, secret_hash, idle_ref)
		{values} ON CONFLICT (session, outbox) DO UPDATE SET
			incarnation = excluded.incarnation, last_seq = excluded.last_seq, acked_through = excluded.acked_through,
			acked_op = excluded.acked_op, acked_digest = excluded.acked_digest, secret_hash = excluded.secret_hash,
			idle_ref = excluded.idle_ref`)

	readRecords = dialect.Both("ttii", `
		SELECT `+recordColumns+` FROM {w} CROSS JOIN records r
		WHERE r.session = w.a AND r.outbox = w.b AND r.last_seq >= w.c AND r.first_seq <= w.d`)

	// searchRecords may return too many (the text may occur elsewhere in a record); the caller
	// checks again. Only unacknowledged records are searched.
	searchRecords = dialect.Both("ttt", `
		SELECT `+recordColumns+` FROM {w} CROSS JOIN records r
		WHERE r.session = w.a AND r.outbox = w.b AND {holds r.outcomes w.c}`)

	insertRecords = dialect.Both("ttiib", `
		INSERT INTO records (session, outbox, first_seq, last_seq, outcomes) {values}`)

	pruneRecords = dialect.Both("tti", `
		DELETE FROM records WHERE (session, outbox, first_seq) IN (
			SELECT r.session, r.outbox, r.first_seq FROM {w} CROSS JOIN records r
			WHERE r.session = w.a AND r.outbox = w.b AND r.first_seq <= w.c AND r.last_seq <= w.c)`).SetOneRow(`
		DELETE FROM records WHERE session = $1 AND outbox = $2 AND first_seq <= $3 AND last_seq <= $3`)
)

// ScanStream scans a stream and, behind its columns, more.
func ScanStream(row dialect.Scanner, more ...any) (*ledger.Stream, error) {
	var (
		m                                ledger.Stream
		incarnation, lastSeq, ackThrough int64
		digest, secret                   []byte
	)
	dest := []any{&m.Session, &m.Outbox, &incarnation, &lastSeq, &ackThrough, &m.AckedOp, &digest, &secret, &m.ReadOnlyRef}
	if err := row.Scan(append(dest, more...)...); err != nil {
		return nil, err
	}
	m.Incarnation, m.LastSeq, m.AckedThrough = uint64(incarnation), uint64(lastSeq), uint64(ackThrough)
	copy(m.AckedDigest[:], digest)
	copy(m.SecretHash[:], secret)
	return &m, nil
}

func streamValues(m *ledger.Stream) []any {
	return []any{m.Session, m.Outbox, int64(m.Incarnation), int64(m.LastSeq), int64(m.AckedThrough), m.AckedOp, m.AckedDigest[:], m.SecretHash[:], m.ReadOnlyRef}
}

// StreamsByKey returns a callback that puts streams into a map.
func StreamsByKey(streams map[session.StreamKey]*ledger.Stream) func(dialect.Scanner) error {
	return func(row dialect.Scanner) error {
		m, err := ScanStream(row)
		if err == nil {
			streams[session.StreamKey{Session: m.Session, Outbox: m.Outbox}] = m
		}
		return err
	}
}

func scanRecord(row dialect.Scanner) (key session.StreamKey, r *ledger.Record, err error) {
	var outcomes []byte
	if err := row.Scan(&key.Session, &key.Outbox, &outcomes); err != nil {
		return key, nil, err
	}
	r, err = ledger.UnmarshalRecord(outcomes)
	return key, r, err
}

func recordValues(r *session.StreamRecord) []any {
	return []any{r.Stream.Session, r.Stream.Outbox, int64(r.Record.FirstSeq), int64(r.Record.LastSeq()), r.Record.Marshal()}
}
