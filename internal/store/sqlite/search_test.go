package sqlite

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// TestPurgedLeavesTheIndex: neither a word that was purged nor its hash stands in the files, although
// its value was indexed, replaced and indexed again, among others that share words with it; and where
// the session is deleted, nobody can tell any more what its hashes are of.
func TestPurgedLeavesTheIndex(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openIn(t, dir)
	a := harness.NewAgent(t, s)
	all := &capability.Grant{}
	search := func(text string) (found []string) {
		t.Helper()
		page, err := s.Search(t.Context(), a.Session, session.SearchQuery{Text: text, Limit: 100}, nil, func(*session.Access) (*capability.Grant, error) { return all, nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Shown(all).Found {
			found = append(found, e.Key)
		}
		return found
	}
	r := rand.New(rand.NewPCG(1, 2))
	put := func(key, words string) {
		for range 30 {
			words += fmt.Sprintf(" w%d", r.IntN(500))
		}
		a.Do("put", "key", key, "payload", json.RawMessage(`{"text":"`+words+`"}`))
	}
	for i := range 200 {
		put(fmt.Sprintf("note/%d", r.IntN(60)), "common")
		if put("note/leak", fmt.Sprintf("common leaked%d leaked4711", i%3)); i%9 == 0 {
			search("common")
		}
	}
	if found := search("leaked4711"); len(found) != 1 {
		t.Fatalf("found in %v", found)
	}

	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, fileName)+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var salt []byte
	if err := db.QueryRow("SELECT salt FROM search_sessions WHERE session = ?", a.Session).Scan(&salt); err != nil {
		t.Fatal(err)
	}
	hash := func(word string) string { // its end: an index leaves out what a word has in common with the one before
		sum := sha256.Sum256(append(salt[:len(salt):len(salt)], word...))
		return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[4:10])
	}
	if stands(t, dir, hash("leaked4711")) == nil {
		t.Fatal("the word's hash was never in the files: this test shows nothing")
	}
	a.Do("purge", "key", "note/leak")
	for _, text := range []string{"leaked4711", hash("leaked4711"), hash("leaked0"), hash("leaked1"), hash("leaked2")} {
		if found := stands(t, dir, text); found != nil {
			t.Errorf("%s stands in %v", text, found)
		}
	}
	if found := search("leaked4711"); found != nil {
		t.Errorf("what was purged is found in %v", found)
	}
	if found := search("common"); len(found) < 40 {
		t.Errorf("of the others there are %d", len(found))
	}
	a.Do("delete")
	if found := stands(t, dir, string(salt)); found != nil {
		t.Errorf("the salt of a deleted session stands in %v", found)
	}
	for more := true; more; {
		if more, err = s.Forget(t.Context(), a.Session, -time.Hour, 10); err != nil {
			t.Fatal(err)
		}
	}
	var rows int
	if err := db.QueryRow("SELECT count(*) FROM search_rows").Scan(&rows); err != nil || rows > 0 {
		t.Errorf("of a forgotten session's index %d rows are left, %v", rows, err)
	}
}
