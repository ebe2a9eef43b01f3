package txn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// TestSplitEntries: a key that was found absent is inserted, unless the same Save drops it first.
func TestSplitEntries(t *testing.T) {
	t.Parallel()
	trans := &Tx{absent: map[string][]string{"ses_A": {"a", "b", "c", "d"}, "ses_B": {"a"}}}
	c := &session.Changes{
		Entries:     []*session.Entry{{Session: "ses_A", Key: "a"}, {Session: "ses_A", Key: "c"}, {Session: "ses_A", Key: "e"}},
		DropEntries: map[string][]string{"ses_A": {"b", "c"}, "ses_B": {"a"}},
	}
	fresh, others := trans.splitEntries(c)
	if !slices.Equal(fresh, c.Entries[:1]) || !slices.Equal(others, c.Entries[1:]) {
		t.Errorf("inserts %v, and is ready for either with %v", fresh, others)
	}
	if left := trans.absent["ses_A"]; !slices.Equal(left, []string{"b", "c", "d"}) {
		t.Errorf("still absent: %v", left)
	}
}

// TestOldServersFindNoRights: of a ref with a limit that came later, the columns in which a server of an
// earlier version finds rights have none.
func TestOldServersFindNoRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		g    capability.Grant
		want [4]int64
	}{
		{capability.Grant{}, [4]int64{7, 0, 0, 0}},
		{capability.Grant{Message: "m"}, [4]int64{0, 7, 0, 0}},
		{capability.Grant{ReadKeys: []string{"todo/"}}, [4]int64{0, 0, 7, 0}},
		{capability.Grant{WriteKeys: []string{"todo/"}}, [4]int64{0, 0, 7, 0}},
		{capability.Grant{Children: capability.Read}, [4]int64{0, 0, 0, 7}},
		{capability.Grant{Rights: capability.LaterRights, Owner: true}, [4]int64{7, 0, 0, 0}}, // every owner's ref has them
		{capability.Grant{Rights: capability.Schema}, [4]int64{7 | 1<<7, 0, 0, 0}},            // which says nothing to it
		{capability.Grant{Rights: capability.Break}, [4]int64{7 | 1<<6, 0, 0, 0}},
	} {
		c.g.ID, c.g.Target, c.g.Rights = "ses_A.s1", "ses_A", c.g.Rights|capability.Read|capability.Append|capability.Share
		values, err := grantValues(&c.g)
		if err != nil {
			t.Fatal(err)
		}
		columns := regexp.MustCompile(`\w+`).FindAllString(insertGrants.SQLite.One[strings.Index(insertGrants.SQLite.One, "(target"):], len(values))
		var got [4]int64
		for i, name := range []string{"rights", "message_rights", "key_rights", "reach_rights"} {
			got[i] = values[slices.Index(columns, name)].(int64)
		}
		if got != c.want {
			t.Errorf("%+v is stored with rights %v, want %v", c.g, got, c.want)
		}
	}
}

// TestBufferedRows: rows are what each makes of them, and what they were leaves nothing behind.
func TestBufferedRows(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 500, 2, 0} {
		trans := &Tx{}
		events := make([]*session.Event, n)
		for i := range events {
			events[i] = &session.Event{Key: fmt.Sprint(i), Cursor: uint64(i)}
		}
		list := bufferedRows(trans, events, insertEvents, eventValues)
		if len(list) != n {
			t.Fatalf("%d rows of %d", len(list), n)
		}
		for i, row := range list {
			if !slices.Equal(row, eventValues(nil, events[i])) {
				t.Errorf("row %d is %v", i, row)
			}
		}
		buffers := trans.buffers
		trans.releaseBuffers()
		for _, p := range buffers {
			if slices.ContainsFunc(p.values[:cap(p.values)], func(v any) bool { return v != nil }) {
				t.Error("values are kept")
			}
		}
	}
}

// inPlace is a backend whose transactions go nowhere.
type inPlace struct{ dialect.Backend }

func (inPlace) Update(_ context.Context, fn func(dialect.Runner) error) error { return fn(nil) }
func (inPlace) Announce(map[string]uint64)                                    {}

var errEnd = errors.New("the end")

// TestBuffersComeBack: with the end of a transaction, however it ends.
func TestBuffersComeBack(t *testing.T) {
	t.Parallel()
	for _, end := range []error{nil, errEnd} {
		var used *Tx
		db := NewDB(inPlace{})
		err := db.Update(t.Context(), func(trans *Tx) error {
			used = trans
			bufferedRows(trans, []*session.Event{{}}, insertEvents, eventValues)
			return end
		})
		if !errors.Is(err, end) || len(used.buffers) > 0 {
			t.Errorf("%d are in use after %v", len(used.buffers), err)
		}
	}
}
