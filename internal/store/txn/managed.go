// Sessions that refs of a space have opened by the right manage.

package txn

import (
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

var (
	insertManaged = dialect.Both("ttt", `
		INSERT INTO managed (target, tail, session) {values} ON CONFLICT (session, target, tail) DO NOTHING`)
	readManaged = dialect.Both("", `
		SELECT m.session FROM managed m WHERE m.target = {1} AND m.tail = {2} ORDER BY m.session`)
)

func managedValues(m session.Managed) []any {
	target, tail := SplitRef(m.Ref)
	return []any{target, tail, m.Session}
}

// readManaged reads for a transaction the sessions that refs have opened, after locking them.
func (t *Tx) readManaged(w *session.ReadSet, out *session.Rows) {
	out.Managed = map[string][]string{}
	for _, ref := range w.Managed {
		target, tail := SplitRef(ref)
		t.Run.Queue(lockDescendants, nil, []any{target, tail}, nil)
		t.Run.Queue(readManaged, nil, []any{target, tail}, func(row dialect.Scanner) error {
			var id string
			err := row.Scan(&id)
			out.Managed[ref] = append(out.Managed[ref], id)
			return err
		})
	}
}
