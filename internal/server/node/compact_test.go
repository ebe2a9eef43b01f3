//go:build unix

package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// The compacted view by every method that has it, at once and before a subscription's events; and who does not know it.
func TestCompactedViewOverTheWeb(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		w := r.dialWeb()
		m := r.createWeb(w)
		w.must(m.stream, m.batch(op("put", "key", "message/a", "payload", map[string]int{"n": 1}), op("put", "key", "part/a/1", "payload", map[string]int{"n": 1}),
			op("put", "key", "message/s", "payload", map[string]int{"n": 1}), op("put", "key", "message/b", "payload", map[string]int{"n": 1}), op("compact", "upto", "message/a", "summary", "message/s")))
		sess := w.restore(m.owner)
		keys := func(entries any) string {
			var list []string
			for _, e := range entries.([]any) {
				list = append(list, e.(object)["key"].(string))
			}
			slices.Sort(list)
			return strings.Join(list, " ")
		}
		state := w.give(sess, "snapshot", object{"compacted": true}).(object)
		same(t, "the view", []any{keys(state["entries"]), state["leftOut"]}, []any{"message/b message/s", []any{"a"}})
		by := fields(t, "up to where", state["compacted"], "upto summary cursor actor at ord ordIndex place placeIndex")
		same(t, "it is compacted", []any{by["upto"], by["summary"], by["cursor"], by["ord"], by["place"]}, []any{"message/a", "message/s", 6.0, 2.0, 4.0})
		same(t, "the session says", w.give(sess, "describe").(object)["info"].(object)["compacted"], by)
		same(t, "a list", keys(w.give(sess, "list", object{"compacted": true, "order": "put"}).(object)["entries"]), "message/b message/s")
		k := newWebRecorder()
		w.subscribe(sess, k, object{"snapshot": true, "compacted": true})
		k.until(t, "the state", func() bool { return k.last })
		same(t, "before events", []any{len(k.keys), k.keys["message/s"]}, []any{2, `{"n":1}`})
		w.must(m.stream, m.batch(op("put", "key", "message/a", "payload", map[string]int{"n": 2})))
		k.untilCursor(t, 7)
		same(t, "events come as they are", k.shown, []string{"7 put message/a"})

		from := w.give(sess, "attenuate", object{"from": 2}).(*capnweb.Stub)
		older := object{"understands": []any{"keys", "revert"}}
		w.give(sess, "events", older) // who does not know of it is told of a method that changes nothing
		_, err := w.ask(from, "events", older)
		wantCode(t, "under a first cursor the event is not whole", err, fault.Incompatible)
		w.give(from, "events", object{"understands": []any{"compact"}})
	})
}
