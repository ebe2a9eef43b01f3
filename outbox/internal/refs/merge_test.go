package refs

// What counts of what is said of a ref: the table in merge.go.

import (
	"errors"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// TestAnswerTable: each line of the table that a server's answer comes under.
func TestAnswerTable(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	here := capability.Ref{Hosts: []string{"127.0.0.1:7699"}}.New("ses_" + ulid.Make().String())
	typo := here.With(here.ID, capability.NewSecret())
	moved := capability.Ref{Hosts: []string{"127.0.0.1:7700"}}.With(here.ID, here.Secret)
	far := moved.With(here.ID, typo.Secret)
	lives := RefStatus{Confirmed: at(1), Rights: capability.Read}
	read := Answer{Described: true, Rights: capability.Read}
	share := Answer{Described: true, Rights: capability.Share, External: "outside"}
	dead := func(code fault.Code) RefStatus { return RefStatus{Confirmed: at(9), Dead: code} }
	with := func(s RefStatus, change func(*RefStatus)) RefStatus { change(&s); return s }
	for name, c := range map[string]struct {
		stored   RefStatus
		role     Role
		about    capability.Ref
		answer   Answer
		want     RefStatus
		text     capability.Ref // that is stored then
		external string         // what is stored then; before it was "inside"
		settled  bool
		err      fault.Code
	}{
		"accepted, the first time":           {about: here, want: RefStatus{Confirmed: at(9)}, text: here, settled: true},
		"accepted, without the right":        {about: here, answer: Answer{Code: fault.MissingRight}, want: RefStatus{Confirmed: at(9)}, text: here, settled: true},
		"accepted again":                     {stored: lives, about: here, want: lives, text: here, settled: true},
		"described again":                    {stored: lives, about: here, answer: read, want: lives, text: here, settled: true},
		"redeemed again":                     {stored: lives, about: here, answer: Answer{Described: true, Rights: capability.Read, Renew: true}, want: with(lives, func(s *RefStatus) { s.Confirmed = at(9) }), text: here, settled: true},
		"described otherwise":                {stored: lives, about: here, answer: share, want: RefStatus{Confirmed: at(9), Rights: capability.Share}, text: here, external: "outside", settled: true},
		"described by another name":          {stored: lives, about: here, answer: Answer{Described: true, Rights: capability.Read, External: "outside"}, want: with(lives, func(s *RefStatus) { s.Confirmed = at(9) }), text: here, external: "outside", settled: true},
		"described by the same name":         {stored: lives, about: here, answer: Answer{Described: true, Rights: capability.Read, External: "inside"}, want: lives, text: here, settled: true},
		"described as restricted":            {stored: lives, about: here, answer: Answer{Described: true, Rights: capability.Read, Restricted: true}, want: RefStatus{Confirmed: at(9), Rights: capability.Read, Restricted: true}, text: here, settled: true},
		"described as put, the first time":   {stored: RefStatus{Rights: capability.Read}, about: here, answer: read, want: with(lives, func(s *RefStatus) { s.Confirmed = at(9) }), text: here, settled: true},
		"described elsewhere":                {stored: lives, about: moved, answer: read, want: with(lives, func(s *RefStatus) { s.Confirmed = at(9) }), text: moved, settled: true},
		"accepted, though not an owner's":    {about: here, answer: Answer{Code: fault.NotAnOwner}, want: RefStatus{Confirmed: at(9)}, text: here, settled: true},
		"described as dead":                  {stored: lives, about: here, answer: Answer{Described: true, Dead: fault.Revoked}, want: RefStatus{Confirmed: at(9), Rights: capability.Read, Dead: fault.Revoked}, text: here},
		"accepted, though it was dead":       {stored: with(lives, func(s *RefStatus) { s.Dead = fault.Expired }), about: here, want: with(lives, func(s *RefStatus) { s.Confirmed = at(9) }), text: here, settled: true},
		"accepted elsewhere":                 {stored: lives, about: moved, want: with(lives, func(s *RefStatus) { s.Confirmed = at(9) }), text: moved, settled: true},
		"another secret, none was confirmed": {about: far, want: RefStatus{Confirmed: at(9)}, text: far, settled: true},
		"another secret, at the same place":  {stored: lives, about: typo, want: RefStatus{Confirmed: at(9)}, text: typo, settled: true},
		"another secret, elsewhere":          {stored: lives, about: far, want: lives, text: here, err: fault.AlreadyExists},
		"refused":                            {stored: lives, about: here, answer: Answer{Code: fault.Revoked}, want: with(dead(fault.Revoked), func(s *RefStatus) { s.Rights = capability.Read }), text: here},
		"refused as before":                  {stored: with(dead(fault.Revoked), func(s *RefStatus) { s.Confirmed = at(5) }), about: here, answer: Answer{Code: fault.Revoked}, want: with(dead(fault.Revoked), func(s *RefStatus) { s.Confirmed = at(5) }), text: here},
		"another secret, refused":            {stored: lives, about: typo, answer: Answer{Code: fault.Revoked}, want: lives, text: here},
		"refused elsewhere":                  {stored: lives, about: moved, answer: Answer{Code: fault.Revoked}, want: lives, text: here},
		"not known any more":                 {stored: lives, about: here, answer: Answer{Code: fault.UnknownRef}, want: with(lives, func(s *RefStatus) { s.Dead = fault.UnknownRef }), text: here},
		"not known, perhaps not yet":         {about: here, answer: Answer{Code: fault.UnknownRef}, text: here},
		"another secret, not known":          {stored: lives, about: typo, answer: Answer{Code: fault.UnknownRef}, want: lives, text: here},
		"nothing":                            {stored: lives, about: here, answer: Answer{Code: fault.Unavailable}, want: lives, text: here},
		"one that was rotated":               {role: RoleRotated, about: here, answer: share, text: here, settled: true},
		"one that was dropped":               {role: RoleGone, about: here, answer: share, text: here, settled: true},
	} {
		if c.role == "" {
			c.role = Shared
		}
		if c.external == "" {
			c.external = "inside"
		}
		old := Row{ID: here.ID, Text: here.Text(), Role: c.role, External: "inside", Redemption: "r", Saved: 1}
		old.setStatus(c.stored)
		now, settled, err := old, false, error(nil)
		if Tells(&c.answer) {
			var status RefStatus
			var news bool
			if status, news, settled = StatusFrom(&c.answer, &SavedRef{Ref: here, RefMeta: RefMeta{Role: c.role, External: "inside", RefStatus: c.stored}}, c.about, at(9)); news {
				update, broken := NewRow(c.about, RefMeta{External: c.answer.External, RefStatus: status}, at(9))
				if broken != nil {
					t.Fatal(broken)
				}
				now, err = MergeConfirmed(old, update, c.about.Address())
				settled = settled && err == nil
			}
		}
		if now.status() != c.want || now.Text != c.text.Text() || settled != c.settled || !errors.Is(err, c.err) && err != nil || c.err != 0 && err == nil {
			t.Errorf("%s: %+v, settled %t, %v", name, now, settled, err)
		}
		if now.Redemption != "r" || now.Saved != 1 || now.Role != c.role || now.External != c.external {
			t.Errorf("%s: %+v", name, now)
		}
	}
}

// TestPutRefMerges: the saved and the given fields are merged, also for a ref that a server has reported on.
func TestPutRefMerges(t *testing.T) {
	t.Parallel()
	ref := capability.Ref{Hosts: []string{"127.0.0.1:7699"}}.New("ses_" + ulid.Make().String())
	other := ref.With(ref.ID, capability.NewSecret())
	row := func(ref capability.Ref, role Role) Row {
		return Row{ID: ref.ID, Text: ref.Text(), Role: role, Redemption: "r", Saved: 1, Rights: capability.Read, Restricted: true}
	}
	old := row(ref, Shared)
	old.Confirmed = 1000

	put := Row{ID: ref.ID, Text: ref.Text(), Role: SessionOwner, Redemption: "another", Saved: 2, Confirmed: 2000}
	want := put
	want.Redemption, want.Saved = "r", 1
	if got, err := MergePut(old, put); got != want || err != nil {
		t.Errorf("put with a word: %+v, %v", got, err)
	}
	put.Confirmed = 0
	want.Confirmed, want.Rights, want.Restricted = 1000, capability.Read, true
	if got, err := MergePut(old, put); got != want || err != nil {
		t.Errorf("put without a word: %+v, %v", got, err)
	}

	update := Row{ID: ref.ID, Text: other.Text(), Confirmed: 3000}
	first := row(ref, Shared)
	if got, err := MergeConfirmed(first, update, ref.Address()); got.Rights != 0 || got.Restricted || got.Confirmed != 3000 || err != nil {
		t.Errorf("another secret has the rights of the one before: %+v, %v", got, err)
	}
	if got, err := MergeConfirmed(first, Row{ID: ref.ID, Text: other.Text(), Dead: fault.UnknownRef}, ref.Address()); got != first || err != nil {
		t.Errorf("another secret, not known, when that one is stored no more: %+v, %v", got, err)
	}
	damaged := old
	damaged.Text = "junk"
	if got, err := MergeConfirmed(damaged, update, ref.Address()); got != damaged || !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("in the place of one that cannot be read: %+v, %v", got, err)
	}
	for _, role := range []Role{RoleGone, RoleRotated, RoleRotating} {
		was := row(ref, role)
		if got, err := MergeConfirmed(was, Row{ID: ref.ID, Text: ref.Text(), Confirmed: 3000}, ref.Address()); got != was || err != nil {
			t.Errorf("a word of one that is %s: %+v, %v", role, got, err)
		}
		if got, err := MergePut(was, put); err != nil || role != RoleGone && got != was {
			t.Errorf("put over one that is %s: %+v, %v", role, got, err)
		}
	}
}

// TestPutTable: each line of the table that a caller's ref comes under.
func TestPutTable(t *testing.T) {
	t.Parallel()
	ref := capability.Ref{Hosts: []string{"127.0.0.1:7699"}}.New("ses_" + ulid.Make().String())
	stored := Row{ID: ref.ID, Text: ref.Text(), Role: Shared, Redemption: "r", Saved: 1, Rights: capability.Read}
	put := Row{ID: ref.ID, Text: ref.With(ref.ID, capability.NewSecret()).Text(), Role: SessionOwner, Redemption: "another", Saved: 2}
	replaced := put
	replaced.Redemption, replaced.Saved = stored.Redemption, stored.Saved
	confirmed, gone := stored, stored
	confirmed.Confirmed, gone.Role = 1000, RoleGone
	for name, c := range map[string]struct {
		old, want Row
		err       fault.Code
	}{
		"no row":                            {want: put},
		"a ref that was dropped":            {old: gone, want: put},
		"another secret, none is confirmed": {old: stored, want: replaced},
		"another secret is confirmed":       {old: confirmed, want: confirmed, err: fault.AlreadyExists},
	} {
		if got, err := MergePut(c.old, put); got != c.want || fault.CodeOf(err) != c.err {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestNewRow: what cannot be sent through is not stored, and a ref without a role gets one.
func TestNewRow(t *testing.T) {
	t.Parallel()
	address := capability.Ref{Hosts: []string{"127.0.0.1:7699"}}
	session, space := address.New("ses_"+ulid.Make().String()), address.New("spc_"+ulid.Make().String())
	homeless, unreadable := session, session
	homeless.Hosts, unreadable.Hosts = nil, []string{"a b\n"}
	for name, c := range map[string]struct {
		ref  capability.Ref
		role Role
		want Role // "": BadRefText
	}{
		"a session's":               {ref: session, want: Shared},
		"a session's owner's":       {ref: session, role: SessionOwner, want: SessionOwner},
		"a space's":                 {ref: space, want: SpaceOwner},
		"a space's that was shared": {ref: space, role: Shared, want: Shared},
		"an address":                {ref: address},
		"a ref without a secret":    {ref: session.With(session.ID, capability.Secret{})},
		"a secret without a ref":    {ref: address.With("", capability.NewSecret())},
		"a ref without a host":      {ref: homeless},
		"a ref that is unreadable":  {ref: unreadable},
	} {
		row, err := NewRow(c.ref, RefMeta{Role: c.role, External: "e", Label: "l"}, time.UnixMilli(7))
		if c.want == "" {
			if fault.CodeOf(err) != fault.BadRefText {
				t.Errorf("%s: %+v, %v", name, row, err)
			}
			continue
		}
		if err != nil || row.Role != c.want || row.ID != c.ref.ID || row.Text != c.ref.Text() || row.External != "e" || row.Label != "l" || row.Saved != 7 || row.Redemption == "" {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
	}
}

// TestDeadlyCodes are those after which a ref can do nothing any more.
func TestDeadlyCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[fault.Code]bool{fault.Revoked: true, fault.StaleEpoch: true, fault.Expired: true, fault.SessionDeleted: true, fault.Exhausted: true,
		fault.None: false, fault.UnknownRef: false, fault.Rejected: false, fault.Unavailable: false} {
		if MeansDead(code) != want {
			t.Errorf("%v: %t", code, !want)
		}
	}
}
