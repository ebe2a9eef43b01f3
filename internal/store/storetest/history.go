package storetest

import "testing"

// testHistory: a database has a history from its first moment, and another once it is said
// to be restored.
func testHistory(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	history := func() string {
		t.Helper()
		id, err := f.HistoryID(f.ctx)
		f.must("read the history id", err)
		if len(id) != 32 {
			t.Errorf("the history id is %q", id)
		}
		return id
	}
	was := history()
	if again := history(); again != was {
		t.Errorf("it was %s and is %s", was, again)
	}
	id, err := f.BeginHistory(f.ctx)
	f.must("begin a history", err)
	if is := history(); is != id || is == was {
		t.Errorf("after %s it is %s, and was to be %s", was, is, id)
	}
}
