// Search: keys of a session whose values have some words. The words are those of package search, the
// same on both databases; an index knows which values have which (FTS5, tsvector).
//
// A session has an index once it is searched, which every search brings up to date first, from the
// log: so an append costs nothing for it, and no search misses what was committed before it. Values are
// compared with the query again when they are read, under the scope of the ref, so an index that is
// behind, or has a value that is gone, shows nothing. The index has no words but their hashes with a
// salt of the session's. A purge removes those of its key; where the session is deleted, the salt goes.
//
// Lock order: a session's row in search_sessions comes after its row in sessions. Whoever adds to an
// index, and a purge, locks it, before it reads values: nothing that was purged is added.

package reads

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/search"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	readIndex = dialect.Both("", `SELECT i.version, i.salt, i.cursor, i.upto, i.built FROM search_sessions i WHERE i.session = {1} {lock}`)
	seeIndex  = dialect.Both("", `SELECT i.version, i.salt, i.cursor, i.upto, i.built FROM search_sessions i WHERE i.session = {1}`)

	beginIndex = dialect.Both("tibi", `
		INSERT INTO search_sessions (session, version, salt, cursor) {values} ON CONFLICT (session) DO NOTHING`)
	setIndex = dialect.Both("", `UPDATE search_sessions SET version = {2}, cursor = {3}, upto = {4}, built = {5} WHERE session = {1}`)

	// readChanged reads which keys events after {2} are about.
	readChanged = dialect.Both("", `
		SELECT v.cursor, v.method, v.key FROM events v WHERE v.session = {1} AND v.cursor > {2} ORDER BY v.cursor LIMIT {3}`)

	insertWords = dialect.Each(
		dialect.Both("ttt", `INSERT INTO search_rows (session, key, words) SELECT w.a, w.b, array_to_tsvector(string_to_array(w.c, ' ')) FROM {w}`),
		dialect.Both("ttt", `INSERT INTO search_rows (session, key, words) {values}`))
	// dropWordsBetween deletes the rows of keys above {2} and up to {3}.
	dropWordsBetween = dialect.Both("", `DELETE FROM search_rows WHERE session = {1} AND key > {2} AND key <= {3}`)

	// findWords reads entries without values: those of a session's index that match {2} and are in one
	// of some ranges, with values from cursor {6} on, from the last in the session's order and before a
	// place. What matches is of this session, but for words whose hashes are equal by chance: so
	// Postgres need not look for the session's other rows.
	findWords = dialect.Each(
		dialect.Both("tt", findWordsAmong(`search_rows r WHERE r.words @@ CAST(replace(replace({2}, 'AND', '&'), 'OR', '|') AS tsquery) AND r.session || '' = {1}`)),
		dialect.Both("tt", findWordsAmong(`search_words f CROSS JOIN search_rows r WHERE f.search_words MATCH {2} AND r.id = f.rowid AND r.session = {1}`)))
)

func findWordsAmong(hits string) string {
	return `
		WITH hit AS MATERIALIZED (SELECT r.session, r.key FROM ` + hits + `)
		SELECT ` + txn.EntryMetaColumns + ` FROM hit CROSS JOIN entries e
		WHERE e.session = hit.session AND e.key = hit.key AND (e.ord, e.ord_index, e.key) < ({3}, {4}, {5})
			AND CASE WHEN e.payload IS NULL THEN e.cursor ELSE e.since END >= {6}
			AND EXISTS (SELECT 1 FROM {w} WHERE hit.key >= w.a AND hit.key < w.b)
		ORDER BY e.ord DESC, e.ord_index DESC, e.key DESC LIMIT {7}`
}

// Bounds of what one search does. An index is brought up to date in pieces, a transaction each, which
// on SQLite appends wait for; what is found is read in batches.
const (
	indexEntries   = 256       // that a piece adds, about
	indexBytes     = 256 << 10 // of their values
	indexEvents    = 2000      // that a piece looks at
	maxIndexPieces = 64
	searchBatch    = 64      // entries that are read at once
	searchBytes    = 4 << 20 // of their values
	maxSearchBytes = 8 << 20 // that are compared with the query
	hashLetters    = 10      // 50 bits
	searchesAtOnce = 4       // in this process
)

// index is a session's row in search_sessions.
type index struct {
	session string
	version int64
	salt    []byte
	cursor  uint64
	upto    string
	built   bool
}

// queueIndex queues a read of a session's index; to is set if it has one.
func queueIndex(run dialect.Runner, read *dialect.Statement, id string, to **index) {
	run.Queue(read, nil, []any{id}, func(row dialect.Scanner) error {
		i := &index{session: id}
		var cursor, built int64
		err := row.Scan(&i.version, &i.salt, &cursor, &i.upto, &built)
		i.cursor, i.built = uint64(cursor), built != 0
		*to = i
		return err
	})
}

// covers reports whether an index has all changes up to a cursor.
func (i *index) covers(row *session.Row, cursor uint64) bool {
	return i != nil && i.built && i.fits(row) && i.cursor >= cursor
}

// fits reports whether an index can be brought up to date, and need not be made anew.
func (i *index) fits(row *session.Row) bool {
	return i.version == search.Version && i.cursor >= row.Base && i.cursor <= row.Cursor
}

// hash returns a word's hash.
func (i *index) hash(word string) string {
	sum := sha256.Sum256(append(bytes.Clone(i.salt), word...))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:hashLetters])
}

// expression returns what the index is asked for by a query: in FTS5's syntax, of which tsquery's
// differs by its operators.
func (i *index) expression(q *search.Query) string {
	var all []string
	for _, alternatives := range q.Alternatives() {
		var any []string
		for _, words := range alternatives {
			hashed := make([]string, len(words))
			for n, w := range words {
				hashed[n] = i.hash(w)
			}
			any = append(any, "("+strings.Join(hashed, " AND ")+")")
		}
		all = append(all, "("+strings.Join(any, " OR ")+")")
	}
	return strings.Join(all, " AND ")
}

// Search implements session.Reader.
func (s *Reads) Search(ctx context.Context, id string, q session.SearchQuery, refIDs []string, admit session.Admit) (*session.Unscoped[*session.SearchPage], error) {
	if err := txn.CheckText(q.Text, q.After); err != nil {
		return nil, err
	}
	words, refused := q.Parse()
	if refused != nil {
		return nil, refused
	}
	select {
	case s.searches <- struct{}{}:
		defer func() { <-s.searches }()
	case <-ctx.Done():
		return nil, fault.Overloaded.Because(ctx.Err(), "too many searches at once: try again later")
	}
	var page *session.SearchPage
	target := uint64(0) // what has to be in the index; 0 is all
	look := func() error {
		page = &session.SearchPage{}
		return s.admitted(ctx, "search", id, refIDs, admit, &page.Access, func(run dialect.Runner, g *capability.Grant) error {
			var of *index
			queueIndex(run, seeIndex, id, &of)
			if err := run.Flush(ctx); err != nil {
				return err
			}
			page.Indexing = !of.covers(page.Row, cmp.Or(target, page.Row.Cursor))
			if page.Indexing && target == 0 || of == nil {
				return nil
			}
			return searchPage(ctx, run, &q, words, of, g, page)
		})
	}
	if err := look(); err != nil || !page.Indexing {
		return session.NewUnscoped(page), err
	}
	target = page.Row.Cursor
	if err := s.updateIndex(ctx, id, target); err != nil {
		return nil, txn.Wrap("update the index", err)
	}
	if err := look(); err != nil {
		return nil, err
	}
	return session.NewUnscoped(page), nil
}

// searchPage reads a page of what a query finds.
func searchPage(ctx context.Context, run dialect.Runner, q *session.SearchQuery, words *search.Query, of *index, g *capability.Grant, page *session.SearchPage) error {
	at, refused := q.Position(of.session, &page.Key)
	if refused != nil {
		return refused
	}
	var ranges [][]any
	for _, r := range session.CoveredRanges(g, "", session.PrefixEnd("")) {
		ranges = append(ranges, []any{r.From, r.Below})
	}
	var last *session.Entry // that was compared
	hide := newHiding(run, page.Row)
	for examined := 0; len(ranges) > 0; {
		var hits []*session.Entry
		args := []any{of.session, of.expression(words), txn.Clamp(at.Ord.At), txn.Clamp(at.Ord.Index), at.Key, txn.Clamp(g.VisibleFrom), int64(searchBatch)}
		if err := dialect.Query(ctx, run, findWords, ranges, args, dialect.Collect(&hits, txn.ScanMeta)); err != nil {
			return err
		}
		if len(hits) == 0 {
			return nil
		}
		end := session.PositionOf(hits[len(hits)-1])
		hits, err := hide.shown(ctx, hits)
		if err != nil {
			return err
		}
		if len(hits) == 0 {
			at = end
			continue
		}
		infos, err := entryInfos(ctx, run, hits, true, searchBytes)
		if err != nil {
			return err
		}
		for _, e := range infos {
			if examined += len(e.Payload); examined > maxSearchBytes && last != nil {
				page.Next = session.NextAfter(g, &page.Key, session.ByPut, last)
				return nil
			}
			if match := words.Find(e.Key, e.Payload); match != nil {
				if n := len(page.Found); n == q.MaxFound() {
					page.Next = session.NextAfter(g, &page.Key, session.ByPut, page.Found[n-1].Entry)
					return nil
				}
				bare := *e.Entry
				bare.Payload = nil
				e.Entry = &bare
				page.Found = append(page.Found, &session.Found{EntryInfo: e, Match: match})
			}
			last, at = e.Entry, session.PositionOf(e.Entry)
		}
	}
	return nil
}

// errNoSession ends the update of an index that nobody may make: its session is not there.
var errNoSession = errors.New("store: the session has no state")

// updateIndex brings the index of a session up to a cursor, or as far as one search goes.
func (s *Reads) updateIndex(ctx context.Context, id string, target uint64) error {
	for range maxIndexPieces {
		done := false
		err := s.db.Update(ctx, func(t *txn.Tx) (err error) {
			done, err = updateIndex(ctx, t, id, target)
			return err
		})
		if errors.Is(err, errNoSession) {
			return nil
		}
		if err != nil || done {
			return err
		}
	}
	return nil
}

// updateIndex adds a piece to the index of a session. The row of an index is made under the session's
// lock, as its deletion is: so the index of a deleted session is not made again.
func updateIndex(ctx context.Context, t *txn.Tx, id string, target uint64) (done bool, err error) {
	var of *index
	queueIndex(t.Run, readIndex, id, &of)
	if err := t.Run.Flush(ctx); err != nil {
		return false, err
	}
	if of == nil {
		return false, startIndex(ctx, t, id)
	}
	var row *session.Row
	txn.QueueRow(t.Run, txn.ReadSessions, id, &row)
	if err := t.Run.Flush(ctx); err != nil { // or the values might be those from before the lock
		return false, err
	}
	if row == nil || row.Life != session.Live {
		return false, errNoSession
	}
	if !of.fits(row) {
		of.version, of.cursor, of.upto, of.built = search.Version, row.Cursor, "", false
	}
	if of.built {
		err = indexChanges(ctx, t, of)
	} else {
		err = indexNext(ctx, t, of)
	}
	if err != nil {
		return false, err
	}
	built := int64(0)
	if of.built {
		built = 1
	}
	t.Run.Queue(setIndex, nil, []any{id, of.version, int64(of.cursor), of.upto, built}, nil)
	return of.built && of.cursor >= target, nil
}

// startIndex makes the row of a session's index.
func startIndex(ctx context.Context, t *txn.Tx, id string) error {
	var row *session.Row
	txn.QueueRow(t.Run, txn.LockSessions, id, &row)
	if err := t.Run.Flush(ctx); err != nil {
		return err
	}
	if row == nil || row.Life != session.Live {
		return errNoSession
	}
	salt := make([]byte, 16)
	rand.Read(salt) // never fails
	return dialect.Query(ctx, t.Run, beginIndex, [][]any{{id, int64(search.Version), salt, int64(row.Cursor)}}, nil, nil)
}

// indexNext adds the next entries to an index that is made.
func indexNext(ctx context.Context, t *txn.Tx, of *index) error {
	entries, more, err := txn.EntryPage(ctx, t.Run, of.session, txn.KeyAfter(of.upto), session.PrefixEnd(""), indexBytes, indexEntries)
	if err != nil {
		return err
	}
	through := session.PrefixEnd("")
	if more {
		through = entries[len(entries)-1].Key
	}
	t.Run.Queue(dropWordsBetween, nil, []any{of.session, of.upto, through}, nil)
	addWords(t, of, entries)
	of.upto, of.built = through, !more
	return nil
}

// addWords adds entries to an index, which has none of their keys.
func addWords(t *txn.Tx, of *index, entries []*session.Entry) {
	var rows [][]any
	for _, e := range entries {
		words := search.Words(e.Key, e.Payload)
		if len(words) == 0 {
			continue
		}
		var text strings.Builder
		for i, w := range words {
			if i > 0 {
				text.WriteByte(' ')
			}
			text.WriteString(of.hash(w))
		}
		rows = append(rows, []any{e.Session, e.Key, text.String()})
	}
	t.QueueList(insertWords, rows, nil)
}

// indexChanges adds what the next events have changed.
func indexChanges(ctx context.Context, t *txn.Tx, of *index) error {
	var changes []session.Change
	if err := dialect.Query(ctx, t.Run, readChanged, nil, []any{of.session, int64(of.cursor), int64(indexEvents)}, func(row dialect.Scanner) error {
		var c session.Change
		var cursor int64
		err := row.Scan(&cursor, &c.Method, &c.EventKey)
		c.Cursor = uint64(cursor)
		changes = append(changes, c)
		return err
	}); err != nil || len(changes) == 0 {
		return err
	}
	var keys []string
	since := map[string]uint64{} // the first of the events that are about a key
	add := func(key string, cursor uint64) {
		if _, there := since[key]; !there {
			since[key] = cursor
			keys = append(keys, key)
		}
	}
	for _, c := range changes {
		key, below := session.ChangedKeys(c.Method, c.EventKey)
		if key != "" {
			add(key, c.Cursor)
		}
		if below == "" {
			continue
		}
		var parts []*session.Entry
		if err := dialect.Query(ctx, t.Run, listByKey, nil, []any{of.session, below, session.PrefixEnd(below), int64(math.MaxInt32)}, dialect.Collect(&parts, txn.ScanMeta)); err != nil {
			return err
		}
		for _, e := range parts {
			add(e.Key, c.Cursor)
		}
	}
	// Until the keys of an event are done its cursor is not passed; an event may be about many.
	for first := of.cursor; len(keys) > 0 && of.cursor == first; {
		done, err := indexKeys(ctx, t, of, keys[:min(len(keys), indexEntries)])
		if err != nil {
			return err
		}
		if keys = keys[done:]; len(keys) > 0 {
			of.cursor = since[keys[0]] - 1
		}
	}
	if len(keys) == 0 {
		of.cursor = changes[len(changes)-1].Cursor
	}
	return nil
}

// indexKeys adds the present values of the first of keys, and returns of how many.
func indexKeys(ctx context.Context, t *txn.Tx, of *index, keys []string) (done int, err error) {
	found := map[string]*session.Entry{}
	if err := dialect.Query(ctx, t.Run, txn.ReadEntryMeta, txn.PairRows(map[string][]string{of.session: keys}), nil, dialect.EachRow(txn.ScanMeta, func(e *session.Entry) {
		found[e.Key] = e
	})); err != nil {
		return 0, err
	}
	var there []*session.Entry
	for _, key := range keys {
		if e := found[key]; e != nil {
			there = append(there, e)
		}
	}
	infos, err := entryInfos(ctx, t.Run, there, true, indexBytes)
	if err != nil {
		return 0, err
	}
	if done = len(keys); len(infos) < len(there) {
		done = slices.Index(keys, there[len(infos)].Key)
	}
	t.QueueList(txn.DropWords, txn.PairRows(map[string][]string{of.session: keys[:done]}), nil)
	addWords(t, of, there[:len(infos)])
	return done, t.Run.Flush(ctx)
}
