package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// TestPurgedWhileItIsIndexed: what is purged while a search adds it to the index is not in it
// afterwards.
func TestPurgedWhileItIsIndexed(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, conn := openOn(t, url), admin(t, url)
	a := harness.NewAgent(t, s)
	search := func() {
		_, err := s.Search(t.Context(), a.Session, session.SearchQuery{Text: "words"}, nil, func(*session.Access) (*capability.Grant, error) { return &capability.Grant{}, nil })
		if err != nil {
			t.Error(err)
		}
	}
	text := json.RawMessage(`{"text":"` + strings.Repeat("words leaked ", 5000) + `"}`)
	search()
	for i := range 30 {
		key := fmt.Sprintf("note/%d", i)
		a.Do("put", "key", key, "payload", text)
		var searched sync.WaitGroup
		searched.Go(search)
		a.Do("purge", "key", key)
		searched.Wait()
		var rows int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM search_rows WHERE key = $1", key).Scan(&rows); err != nil || rows > 0 {
			t.Fatalf("round %d: %d rows of what was purged, %v", i, rows, err)
		}
	}
}
