package migrations

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

// upTo is a set as it was when it had n migrations.
func upTo(t *testing.T, set Schema, n int) Schema {
	t.Helper()
	files, err := fs.Glob(set.Files, "*.sql")
	if err != nil || len(files) < n {
		t.Fatal(files, err)
	}
	old := fstest.MapFS{}
	for _, name := range files[:n] {
		data, err := fs.ReadFile(set.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		old[name] = &fstest.MapFile{Data: data}
	}
	set.Files = old
	return set
}

// TestUpgrade: a database of the version before, with rows in it, comes up, and
// what the binary before writes afterwards still goes in.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			before, after := upTo(t, d.set, 1), upTo(t, d.set, 2)
			up := func(set Schema) {
				t.Helper()
				if err := Up(t.Context(), db, set); err != nil {
					t.Fatal(err)
				}
			}
			add := func(tail, parent string, target string, rights int) {
				t.Helper()
				parentTarget := ""
				if parent != "" {
					parentTarget = "spc_1"
				}
				if _, err := db.Exec(`INSERT INTO grants (target, tail, parent_target, parent_tail, owner, epoch, rights, methods, expires,
					visible_from, redeemable, redeemed, created, revoked, cut, revoked_by, label, actor, hash)
					VALUES ($1, $2, $3, $4, 0, 1, $5, 'null', 7, 0, 0, 0, 1, 0, 0, '', '', '', $6)`, target, tail, parentTarget, parent, rights, []byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			rights := func(tail string) (r int) {
				t.Helper()
				var message string
				var seal []byte
				var noted int
				if err := db.QueryRow("SELECT rights, message, seal, noted FROM grants WHERE tail = $1", tail).Scan(&r, &message, &seal, &noted); err != nil || message != "" || len(seal) != 0 || noted != 0 {
					t.Errorf("%s: %v, %q, %v, %d", tail, err, message, seal, noted)
				}
				return r
			}
			up(before)
			add("root", "", "spc_1", 48)
			add("saved", "root", "spc_1", 48)
			add("owner", "root", "ses_1", 15)
			if _, err := db.Exec("INSERT INTO audit (target, id, at, act, reason, cursor, times, ref, actor, subject, op) VALUES ('ses_1', 'a', 1, 1, 0, 0, 1, '', '', '', '')"); err != nil {
				t.Fatal(err)
			}
			up(after)
			up(before) // the binary before starts on it
			add("later", "owner", "ses_1", 1)
			if got := [4]int{rights("root"), rights("saved"), rights("owner"), rights("later")}; got != [4]int{60, 48, 15, 1} {
				t.Errorf("rights after it are %v", got)
			}
			var n int
			if err := db.QueryRow("SELECT count(*) FROM audit").Scan(&n); err != nil || n != 1 {
				t.Errorf("%d rows of audit, %v", n, err)
			}
		})
	}
}

// TestUpgradeToLimits: sessions may bear one external id, and what the binary before
// writes still goes in, for which there is but one session of that name.
func TestUpgradeToLimits(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			exec := func(text string) {
				t.Helper()
				if _, err := db.Exec(text); err != nil {
					t.Fatal(err)
				}
			}
			space := func(tail, parent string) { // a ref of the space
				t.Helper()
				if _, err := db.Exec(`INSERT INTO grants (target, tail, parent_target, parent_tail, owner, epoch, rights, methods, expires,
						visible_from, redeemable, redeemed, created, revoked, cut, revoked_by, label, actor, hash)
					VALUES ('spc_1', $1, $2, $2, 0, 0, 1, 'null', 7, 0, 0, 0, 1, 0, 0, '', '', '', $3)`, tail, parent, []byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			for i, set := range []Schema{upTo(t, d.set, 3), upTo(t, d.set, 4), upTo(t, d.set, 3)} {
				if err := Up(t.Context(), db, set); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					space("root", "")
					space("before", "spc_1")
				}
			}
			space("since", "spc_1")
			for tail, want := range map[string]int{"root": 0, "before": -1, "since": 0} {
				var spared int
				if err := db.QueryRow("SELECT spared FROM grants WHERE tail = $1", tail).Scan(&spared); err != nil || spared != want {
					t.Errorf("%s: %d is spared, want %d; %v", tail, spared, want, err)
				}
			}
			exec("INSERT INTO public_shares (id, session, owner_tail, share_tail, reader_tail, created) VALUES ('a', 'ses_1', 'o', 's', 'r', 1)")
			exec("INSERT INTO sessions (id, space, external) VALUES ('ses_1', 'spc_1', 'x'), ('ses_2', 'spc_1', 'x')")
			exec("INSERT INTO externals (space, external, session) VALUES ('spc_1', 'x', 'ses_1')")
			const turn = `INSERT INTO turns (session, message, status, lease, begun, ended, outbox, final) VALUES ('ses_1', 'm', $1, 1, 1, 0, 'obx_1', $2)
				ON CONFLICT (session, message) DO UPDATE SET status = excluded.status`
			for _, status := range []int{1, 2} {
				if _, err := db.Exec(turn, status, []byte{}); err != nil {
					t.Fatal(err)
				}
			}
			var n int
			if err := db.QueryRow("SELECT count(*) FROM public_shares WHERE length(asked) = 0").Scan(&n); err != nil || n != 1 {
				t.Errorf("%d shares of nobody, %v", n, err)
			}
		})
	}
}

// TestUpgradeToPublicShares: what was there stays, and the binary before still starts.
func TestUpgradeToPublicShares(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			for _, set := range []Schema{upTo(t, d.set, 2), upTo(t, d.set, 3), upTo(t, d.set, 2)} {
				if err := Up(t.Context(), db, set); err != nil {
					t.Fatal(err)
				}
			}
			const insert = "INSERT INTO public_shares (id, session, owner_tail, share_tail, reader_tail, created) VALUES ($1, 'ses_1', 'o', 's', 'r', 1)"
			for _, id := range []string{"a", "b"} { // a session has many, one after the other
				if _, err := db.Exec(insert, id); err != nil {
					t.Error(err)
				}
			}
			if _, err := db.Exec(insert, "a"); err == nil {
				t.Error("an id is given twice")
			}
		})
	}
}

// TestUpgradeToOrder: rows of before, and those that the binary before writes from then
// on, have no place in an order and no time since when they stand.
func TestUpgradeToOrder(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			for i, set := range []Schema{upTo(t, d.set, 3), upTo(t, d.set, 4), upTo(t, d.set, 3)} {
				if err := Up(t.Context(), db, set); err != nil {
					t.Fatal(err)
				}
				for _, insert := range []string{
					"INSERT INTO sessions (id, space, external, life, cursor, base, head, epoch, auth_gen, created, updated, creator) VALUES ($1, 's', '', 1, 1, 0, $2, 1, 1, 1, 1, '')",
					"INSERT INTO entries (session, schema, grown, payload, key, cursor, text_len, sum) VALUES ($1, 1, 0, NULL, 'message/m', 1, 0, $2)",
				} {
					if _, err := db.Exec(insert, string(rune('a'+i)), []byte{1}); err != nil {
						t.Error(err)
					}
				}
			}
			var without int
			if err := db.QueryRow(`SELECT count(*) FROM entries e CROSS JOIN sessions s WHERE e.session = s.id
				AND e.ord = 0 AND e.ord_index = 0 AND e.since = 0 AND s.ordered_by = 0`).Scan(&without); err != nil || without != 3 {
				t.Errorf("%d rows of 3 are without, %v", without, err)
			}
		})
	}
}

// TestUpgradeToTitles: the titles of sessions that were there before are due, and those of
// what the binary before writes afterwards.
func TestUpgradeToTitles(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			for i, set := range []Schema{upTo(t, d.set, 3), upTo(t, d.set, 4), upTo(t, d.set, 3)} {
				if err := Up(t.Context(), db, set); err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"message/m", "session"} {
					if _, err := db.Exec("INSERT INTO entries (session, schema, grown, payload, key, cursor, text_len, sum) VALUES ($1, 1, 0, NULL, $2, 1, 0, $3)",
						string(rune('a'+i)), key, []byte{1}); err != nil {
						t.Error(err)
					}
				}
			}
			var due int
			if err := db.QueryRow(`SELECT count(*) FROM titles_due WHERE session IN ('a', 'b', 'c')`).Scan(&due); err != nil || due != 3 {
				t.Errorf("%d titles of 3 are due, %v", due, err)
			}
		})
	}
}

// TestUpgradeToOperation: a database of before has a history, which stays.
func TestUpgradeToOperation(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			var was string
			for i, set := range []Schema{upTo(t, d.set, 4), upTo(t, d.set, 5), upTo(t, d.set, 4), d.set} {
				if err := Up(t.Context(), db, set); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					continue
				}
				var id string
				if err := db.QueryRow("SELECT value FROM meta WHERE name = 'history'").Scan(&id); err != nil || len(id) != 32 || was != "" && id != was {
					t.Errorf("the history is %q, and was %q; %v", id, was, err)
				}
				was = id
			}
		})
	}
}

// TestUpgradeToForgotten: of no session of before, nor of what the binary before writes, is
// anything forgotten, and those that were deleted are found.
func TestUpgradeToForgotten(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			for i, set := range []Schema{upTo(t, d.set, 5), upTo(t, d.set, 6), upTo(t, d.set, 5)} {
				if err := Up(t.Context(), db, set); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Exec("INSERT INTO sessions (id, life, cursor, base) VALUES ($1, 2, 3, 3)", string(rune('a'+i))); err != nil {
					t.Error(err)
				}
			}
			var due int
			if err := db.QueryRow("SELECT count(*) FROM sessions WHERE life = 2 AND forgotten = 0").Scan(&due); err != nil || due != 3 {
				t.Errorf("%d of 3 are to be forgotten, %v", due, err)
			}
		})
	}
}

// TestUpgradeToState: no session of before needs a feature, nor does what the binary before writes,
// which leaves what is needed as it is. Where it may run beside others no feature is in use.
func TestUpgradeToState(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		for what, spaces := range map[string]int{"used": 1, "new": 0} {
			t.Run(d.name+" "+what, func(t *testing.T) {
				t.Parallel()
				db := d.open(t)()
				exec := func(text string) {
					t.Helper()
					if _, err := db.Exec(text); err != nil {
						t.Error(err)
					}
				}
				for i, set := range []Schema{upTo(t, d.set, 6), upTo(t, d.set, 7), upTo(t, d.set, 6)} {
					if err := Up(t.Context(), db, set); err != nil {
						t.Fatal(err)
					}
					switch {
					case i == 0 && spaces > 0:
						exec("INSERT INTO spaces (id, created) VALUES ('spc_1', 1)")
					case i == 1:
						exec("INSERT INTO sessions (id, needs) VALUES ('needs', 1)")
					}
					exec("INSERT INTO sessions (id) VALUES ('" + string(rune('a'+i)) + "')")
				}
				exec("INSERT INTO sessions (id, cursor) VALUES ('needs', 7) ON CONFLICT (id) DO UPDATE SET cursor = excluded.cursor")
				var sum, pending, unsaid, want int
				if err := db.QueryRow("SELECT sum(needs), (SELECT count(*) FROM meta WHERE name = 'upgrade'), (SELECT count(*) FROM meta WHERE name = 'manage') FROM sessions").Scan(&sum, &pending, &unsaid); err != nil {
					t.Fatal(err)
				}
				if unsaid != spaces {
					t.Errorf("the audits of %d spaces are to say that roots have manage, want %d", unsaid, spaces)
				}
				if d.name == "postgres" {
					want = spaces
				}
				if sum != 1 || pending != want {
					t.Errorf("sessions need %d, upgrade rows %d, want 1 and %d", sum, pending, want)
				}
			})
		}
	}
}
