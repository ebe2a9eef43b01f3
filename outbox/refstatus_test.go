package outbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
)

// TestAnswerFields of the ref that its batch went through, and of the one that it
// makes.
func TestAnswerFields(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	confirmed := time.UnixMilli(1000)
	applied, skipped := ledger.Outcome{Status: ledger.Applied}, ledger.Outcome{Status: ledger.Skipped}
	ended := func(status ledger.Status, reason fault.Code) ledger.Outcome {
		return ledger.Outcome{Status: status, Reason: reason}
	}
	denied := ended(ledger.Denied, fault.Revoked)
	for name, c := range map[string]struct {
		known  RefStatus
		create bool
		route  func(r *machine.Route)
		outs   []ledger.Outcome
		want   string // of the one that is made and of the other: confirmed, dead as which
	}{
		"of a new one":                  {outs: []ledger.Outcome{applied}, want: "through confirmed"},
		"of a new one, nothing applied": {outs: []ledger.Outcome{skipped}, want: "through confirmed"},
		"of a confirmed one":            {known: RefStatus{Confirmed: confirmed}, outs: []ledger.Outcome{applied}},
		"of one that was dead":          {known: RefStatus{Confirmed: confirmed, Dead: fault.Expired}, outs: []ledger.Outcome{skipped, applied}, want: "through confirmed"},
		"of one that stays dead":        {known: RefStatus{Confirmed: confirmed, Dead: fault.Expired}, outs: []ledger.Outcome{skipped}},
		"known to be good":              {route: func(r *machine.Route) { r.Confirmed = true }, outs: []ledger.Outcome{applied}},
		"not any more":                  {route: func(r *machine.Route) { r.Confirmed = true }, known: RefStatus{Confirmed: confirmed}, outs: []ledger.Outcome{applied, denied}, want: "through confirmed dead:revoked"},
		"dead as is known":              {known: RefStatus{Confirmed: confirmed, Dead: fault.Revoked}, outs: []ledger.Outcome{denied}},
		"dead in another way":           {known: RefStatus{Confirmed: confirmed, Dead: fault.Expired}, outs: []ledger.Outcome{denied}, want: "through confirmed dead:revoked"},
		"denied for once":               {known: RefStatus{Confirmed: confirmed}, outs: []ledger.Outcome{ended(ledger.Denied, fault.Rejected)}},
		"the app says so":               {known: RefStatus{Confirmed: confirmed}, outs: []ledger.Outcome{ended(ledger.Rejected, fault.Revoked)}},
		"by another secret":             {route: func(r *machine.Route) { r.Fingerprint++ }, outs: []ledger.Outcome{applied}},
		"by a secret of the batch's":    {route: func(r *machine.Route) { r.ForkVia = "another" }, outs: []ledger.Outcome{applied}},
		"by one that is not stored":     {route: func(r *machine.Route) { r.Ref = "x" }, outs: []ledger.Outcome{applied}},
		"made":                          {create: true, outs: []ledger.Outcome{applied}, want: "made confirmed rights, through confirmed"},
		"made, and known to be good":    {create: true, known: RefStatus{Confirmed: confirmed}, route: func(r *machine.Route) { r.Confirmed = true }, outs: []ledger.Outcome{applied}, want: "made confirmed rights"},
		"refused":                       {create: true, outs: []ledger.Outcome{ended(ledger.Rejected, fault.AlreadyExists)}, want: "made dead:already_exists, through confirmed"},
		"refused without a reason":      {create: true, outs: []ledger.Outcome{ended(ledger.Rejected, fault.None)}, want: "made dead:rejected, through confirmed"},
		"nobody knows":                  {create: true, outs: []ledger.Outcome{ended(ledger.Denied, fault.Pruned)}, want: "through confirmed"},
		"made, and dead":                {create: true, outs: []ledger.Outcome{applied, denied}, want: "made confirmed rights"},
	} {
		target := newSession()
		if c.create {
			target = newSpace()
		}
		ref := testRef(t, b, target, RefMeta{RefStatus: c.known})
		if _, err := b.Ref(limited(t), ref.ID); err != nil {
			t.Fatal(err)
		}
		e := &machine.Entry{Route: machine.Route{Ref: ref.ID, Fingerprint: refs.Fingerprint(ref)}, Body: &intent.Batch{Ops: []intent.Op{{Method: "put"}}}}
		if c.create {
			e.Route.Ref, e.Route.Space = "made", ref.ID
			e.Body.Ops[0].Method = intent.MethodCreate
		}
		if c.route != nil {
			c.route(&e.Route)
		}
		got := ""
		for _, n := range b.refs.Updates(e, c.outs, b.cfg.Now()) {
			if got != "" {
				got += ", "
			}
			got += map[bool]string{true: "made", false: "through"}[n.ID == "made"]
			if !n.Status.Confirmed.IsZero() {
				got += " confirmed"
			}
			if n.Status.Rights == capability.SessionRights {
				got += " rights"
			}
			if n.Status.Dead != fault.None {
				got += fmt.Sprintf(" dead:%v", n.Status.Dead)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestNewsKeepUnmentionedFields: what they do not tell of stays.
func TestNewsKeepUnmentionedFields(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	first, second := time.UnixMilli(1000), time.UnixMilli(2000)
	ref := testRef(t, b, newSession(), RefMeta{RefStatus: RefStatus{Confirmed: first, Rights: capability.Read}})
	if _, err := b.Ref(limited(t), ref.ID); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ news, want RefStatus }{
		{RefStatus{Dead: fault.Revoked}, RefStatus{Confirmed: first, Rights: capability.Read, Dead: fault.Revoked}},
		{RefStatus{Confirmed: second}, RefStatus{Confirmed: second, Rights: capability.Read}},
		{RefStatus{Confirmed: second, Rights: capability.Share}, RefStatus{Confirmed: second, Rights: capability.Share}},
	} {
		b.refs.ApplyUpdates([]refs.Update{{ID: "another", Status: c.news}, {ID: ref.ID, Status: c.news}})
		if got := b.refs.ByID(ref.ID); got.RefStatus != c.want {
			t.Errorf("after %+v: %+v", c.news, got.RefStatus)
		}
	}
}
