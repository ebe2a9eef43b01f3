package outbox

// The machine, by transcripts: what happened, and under it what it asks for.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

func TestMachine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		win  Window
		text string
	}{
		"from nothing to idle": {Window{}, `
			found A → look A
			looked A head → open A rA
			opened A → load A 256
			loaded A A1 A2 → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1
			stored A1 →
			ok A2 → finish A2
			stored A2 →
			at 1s → ack A 2
			at 5m → close A
			found A → look A
			looked A →`},
		"nothing there after all": {Window{}, `
			found A → look A
			found A →
			looked A → look A
			looked A →`},
		"committed straight to an open stream": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			sequenced A2 → send A2 acked 0
			ok A1 → finish A1
			stored A1 →
			sequenced A3 → send A3 acked 1`},
		"a window of batches": {Window{Batches: 2}, `
			recovered A A1 A2 A3 A4 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1; send A3 acked 0
			stored A1 →
			ok A2 → finish A2; send A4 acked 1`},
		"a window of bytes, and one batch always": {Window{Bytes: 15}, `
			recovered A A1 A2 → open A rA
			opened A → send A1 acked 0
			ok A1 → finish A1; send A2 acked 0`},
		"… and what is answered makes room in it": {Window{Bytes: 25}, `
			recovered A A1 A2 A3 A4 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1; send A3 acked 0
			ok A2 → finish A2; send A4 acked 0`},
		"what a takeover made pending is in flight once it is sent": {Window{}, `
			sequenced A1 pending again → open A rA
			opened A → send A1 acked 0; mark A1
			sequenced A2 → send A2 acked 0
			broken A → close A; note A1/1 A2/1 retry 1s
			at 1s → open A rA
			opened A → send A1 acked 0; send A2 acked 0`},
		"answers of an earlier opening are not believed": {Window{}, `
			recovered A A1 A2 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			err A overloaded → close A; note A1/1 A2/1 retry 1s
			at 1s → open A rA
			opened A → send A1 acked 0
			stale A gap →
			stale A fenced →
			ok A1 → finish A1; send A2 acked 0`},
		"… nor is what became of it": {Window{}, `
			recovered A A1 → open A rA
			drop A1 → close A; raise
			raised → open A rA settle
			late A revoked →
			opened A last 0 → settle A last 0: A1`},
		"nothing is acknowledged that is still referred to": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			sequenced A2 hold 1 → send A2 acked 0
			ok A1 → finish A1
			stored A1 →
			sequenced A3 → send A3 acked 0
			ok A2 → finish A2
			sequenced A4 → send A4 acked 1
			stored A2 →
			sequenced A5 → send A5 acked 2`},
		"the link breaks: again at once, then with pauses": {Window{}, `
			recovered A A1 A2 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1
			broken A → close A; note A2/1 retry 0s; open A rA
			stored A1 →
			fail A disconnected → close A; note A2/2 retry 1s
			at 999ms →
			at 1s → open A rA
			fail A something else → close A; note A2/3 retry 3s
			at 3s → open A rA
			opened A → send A2 acked 1
			broken A → close A; note A2/4 retry 7s
			wake → open A rA
			opened A → send A2 acked 1
			ok A2 → finish A2`},
		"one stream tries for all on its host": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			fail A disconnected → close A; note A1/1 retry 1s
			fail B disconnected → close B; note B1/1 retry 1s
			at 1s → open A rA
			fail A unavailable → close A; note A1/2 retry 3s
			at 3s → open B rB
			opened B → open A rA; send B1 acked 0`},
		"… and when it has to stop trying the next one does": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			fail A disconnected → close A; note A1/1 retry 1s
			fail B disconnected → close B; note B1/1 retry 1s
			at 1s → open A rA
			drop A1 → close A; raise
			at 1s → open B rB`},
		"an answer that is not about the link frees the host": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			fail A disconnected → close A; note A1/1 retry 1s
			fail B disconnected → close B; note B1/1 retry 1s
			at 1s → open A rA
			fail A not_yet_known → close A; note A1/2 retry 2s; open B rB`},
		"the way cannot be looked up for a while": {Window{}, `
			sequenced A1 astray on → note A1/0 retry 1s; find A1
			routed A astray →
			sequenced A2 astray on →
			at 999ms →
			at 1s → note A1/0 retry 3s; find A1 A2
			routed A → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1
			sequenced A3 astray on →
			ok A2 → finish A2; close A; note A3/0 retry 2s; find A3
			routed A → open A rA`},
		"overloaded: all in flight goes again, in order, half as many at a time": {Window{}, `
			recovered A A1 A2 A3 A4 A5 A6 A7 → open A rA
			opened A → send A1 acked 0; send A2 acked 0; send A3 acked 0; send A4 acked 0; send A5 acked 0; send A6 acked 0; send A7 acked 0
			ok A1 → finish A1
			err A overloaded → close A; note A2/1 A3/1 A4/1 A5/1 A6/1 A7/1 retry 1s
			stale A gap →
			at 1s → open A rA
			opened A → send A2 acked 0; send A3 acked 0; send A4 acked 0
			ok A2 → finish A2; send A5 acked 0
			ok A3 → finish A3; send A6 acked 0
			ok A4 → finish A4; send A7 acked 0
			sequenced A8 → send A8 acked 0
			sequenced A9 →
			ok A5 → finish A5; send A9 acked 0`},
		"a gap is filled at once, and again with pauses": {Window{}, `
			recovered A A4 A5 → open A rA
			opened A → send A4 acked 3; send A5 acked 3
			err A gap at 4 → close A; note A4/1 A5/1 retry 0s; open A rA
			opened A → send A4 acked 3; send A5 acked 3
			err A gap at 4 → close A; note A4/2 A5/2 retry 1s
			at 1s → open A rA`},
		"a gap before what is stored: the server lost something": {Window{}, `
			recovered A A4 → open A rA
			opened A → send A4 acked 3
			err A gap at 3 → close A; stop A server_behind; note A4/1`},
		"server behind, diverged, unknown: this stream stops, others go on": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			recovered C C1 → open C rC
			opened A → send A1 acked 0
			opened B → send B1 acked 0
			err A server_behind → close A; stop A server_behind; note A1/1
			err B outbox_diverged → close B; stop B outbox_diverged; note B1/1
			fail C unknown_ref → close C; stop C unknown_ref; note C1/1
			wake →
			recovered D D1 → open D rD
			resume A → stop A no more; open A rA`},
		"no stream is made under a ref that can change nothing: what waits ends, its seqs are given out anew": {Window{}, `
			found A → look A
			looked A head → open A rA
			opened A → load A 256
			loaded A A1 A2 → send A1 acked 0; send A2 acked 0
			err A missing_right → close A; refuse A rA missing_right
			stale A missing_right →
			sequenced A3 →
			found A →
			at 1h →
			given back A more → raise; look A
			looked A head via r2 →
			raised → open A r2
			opened A → load A 256
			loaded A A1 via r2 → send A1 acked 0`},
		"… before any seq was given": {Window{}, `
			found A → look A
			looked A head → open A rA
			fail A revoked → close A; refuse A rA revoked
			given back A → raise
			raised →
			found A → look A`},
		"… while what is left is found, and others get the place": {Window{Streams: 1}, `
			recovered B B1 → open B rB
			found A → look A
			looked A head →
			opened B → send B1 acked 0
			ok B1 → finish B1; close B; open A rA
			opened A → load A 256
			err A revoked →
			found C → look C
			looked C head →
			loaded A A1 → send A1 acked 0
			err A revoked → close A; refuse A rA revoked; open C rC`},
		"… also if it was sent before, under the same ref": {Window{}, `
			sequenced A1 → open A rA
			opened A → send A1 acked 0
			broken A → close A; note A1/1 retry 1s
			at 1s → open A rA
			opened A → send A1 acked 0
			err A expired → close A; refuse A rA expired
			given back A → raise
			raised →`},
		"… but not if it may be known by another": {Window{}, `
			sequenced A1 → open A rA
			opened A → send A1 acked 0
			broken A → close A; note A1/1 retry 1s
			through A1 r2 →
			at 1s → open A r2
			opened A → send A1 acked 0
			err A revoked → close A; stop A revoked; note A1/2`},
		"… nor if a former sender may have sent it": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			err A session_deleted → close A; stop A session_deleted; note A1/1`},
		"… unless it can only have gone the same way": {Window{}, `
			recovered A A1 only rA → open A rA
			opened A → send A1 acked 0
			err A stale_epoch → close A; refuse A rA stale_epoch`},
		"… nor if the stream was there": {Window{}, `
			sequenced A1 → open A rA
			sequenced A2 →
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1
			err A revoked → close A; stop A revoked; note A2/1`},
		"… nor if it was there long ago": {Window{}, `
			found A → look A
			looked A head → open A rA
			fail A revoked → close A; refuse A rA revoked
			given back A known → stop A revoked
			resume A → stop A no more; look A`},
		"… and what was to be dropped is": {Window{}, `
			sequenced A1 → open A rA
			opened A → send A1 acked 0
			drop A1 → close A; raise
			raised → open A rA settle
			fail A revoked → close A; refuse A rA revoked
			given back A → raise
			raised →`},
		"an answer that cannot be stored is not acknowledged, nor is what comes after it": {Window{Streams: 1}, `
			recovered A A1 A2 A3 → open A rA
			recovered B B1 →
			opened A → send A1 acked 0; send A2 acked 0; send A3 acked 0
			ok A1 → finish A1
			ok A2 → finish A2
			unstorable A1 → close A; stop A internal; open B rB
			stored A2 →
			unstorable A2 →
			opened B → send B1 acked 0
			resume A →
			wake →
			at 10m →`},
		"a row that only a newer binary can read stops its stream, after what is before it": {Window{}, `
			found A → look A
			looked A head → open A rA
			opened A → load A 256
			loaded A A1 newer → send A1 acked 0
			found A →
			ok A1 → finish A1; close A; stop A incompatible
			stored A1 →
			found B → look B
			looked B newer → stop B incompatible
			wake →
			resume B → stop B no more; look B`},
		"fenced: nothing more": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			opened A → send A1 acked 0
			err A fenced → fenced
			opened B →
			found C →
			wake →`},
		"an answer that does not fit is not believed": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			nonsense A1 → close A; note A1/1 retry 1s`},
		"waiting for another stream": {Window{}, `
			found B → look B
			looked B more owed A1 →
			found B →
			finished A1 → look B
			looked B head → open B rB
			opened B → load B 256
			loaded B B1 more owed A2 → send B1 acked 0
			ok B1 → finish B1
			stored B1 →
			finished A2 → load B 256`},
		"waiting for several others: any of them may decide it": {Window{}, `
			found B → look B
			looked B more owed A1 C1 →
			finished C1 → look B
			finished A1 →
			looked B more owed D1 E1 →
			finished E1 → look B
			looked B more owed D1 →
			at 1m →
			finished E1 →
			finished D1 → look B
			looked B →`},
		"who waits for another stream is looked at now and then": {Window{}, `
			found B → look B
			looked B more owed A1 →
			at 2s →
			found B → look B`},
		"news for who waits are not forgotten when they come soon": {Window{}, `
			found B → look B
			looked B more owed A1 →
			found B →
			found B →
			at 999ms →
			at 1s → look B
			looked B more owed A1 →
			at 1m →
			found B → look B
			looked B more owed A1 →
			found B →
			finished A1 → look B
			looked B more owed A2 →
			at 2m →
			finished A2 → look B
			found B →
			looked B more owed A3 →
			at 121s → look B`},
		"through another ref: after what is in flight": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			sequenced A2 via other →
			sequenced A3 →
			ok A1 → finish A1; close A; open A other
			opened A → send A2 acked 0
			ok A2 → finish A2; close A; open A rA`},
		"a session being made goes through its space": {Window{}, `
			sequenced A1 space S → open A rA in S
			opened A → send A1 acked 0
			sequenced A2 → send A2 acked 0
			broken A → close A; note A1/1 A2/1 retry 1s
			at 1s → open A rA in S
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1
			broken A → close A; note A2/2 retry 1s; open A rA`},
		"a session that was not made stays reachable": {Window{}, `
			sequenced A1 space S → open A rA in S
			opened A → send A1 acked 0
			refused A1 → finish A1
			stored A1 →
			broken A → close A
			sequenced A2 → open A rA in S`},
		"… until it is made": {Window{}, `
			sequenced A1 space S → open A rA in S
			opened A → send A1 acked 0
			refused A1 → finish A1
			sequenced A2 space S → send A2 acked 0
			ok A2 → finish A2
			broken A → close A
			sequenced A3 → open A rA`},
		"… also if the way it was to be made by is not found meanwhile": {Window{}, `
			sequenced A1 space S → open A rA in S
			opened A → send A1 acked 0
			lost A1 →
			refused A1 → finish A1
			stored A1 →
			broken A → close A
			sequenced A2 → open A rA in S`},
		"a drop fences what is on its way and asks": {Window{}, `
			recovered A A1 A2 A3 → open A rA
			opened A → send A1 acked 0; send A2 acked 0; send A3 acked 0
			drop A2 → close A; raise
			found B → look B
			raised → open A rA settle
			opened A last 1 → settle A last 1: A2
			sequenced A4 →
			settled A A2 → send A1 acked 0; send A2 acked 0 void; send A3 acked 0; send A4 acked 0`},
		"what is sent before the incarnation is higher is fenced with the rest, what is sent after it needs another": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 B2 → open B rB
			opened A → send A1 acked 0
			opened B → send B1 acked 0; send B2 acked 0
			drop A1 → close A; raise
			drop B1 → close B
			raised → open A rA settle; open B rB settle
			opened B last 1 → settle B last 1: B1
			settled B → send B1 acked 0; send B2 acked 0
			drop B2 → close B; raise
			opened A last 0 → settle A last 0: A1
			settled A A1 → send A1 acked 0 void
			raised → open B rB settle`},
		"a drop waits for a higher incarnation, whatever its stream's link does": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			drop A1 → close A; raise
			wake →
			raised → open A rA settle
			fail A disconnected → close A; note A1/1 retry 1s
			at 1s → open A rA settle
			opened A last 1 → settle A last 1: A1`},
		"a drop is heard of before its batch": {Window{}, `
			found A → look A
			looked A head → open A rA
			opened A → load A 256
			drop A1 →
			loaded A A1 A2 → close A; raise
			raised → open A rA settle
			opened A last 0 → settle A last 0: A1
			settled A A1 → send A1 acked 0 void; send A2 acked 0
			ok A1 → finish A1
			drop A1 →
			drop A3 →
			sequenced A3 → close A; raise
			raised → open A rA settle`},
		"the batch that a stream is to be opened for is dropped": {Window{}, `
			found A → look A
			looked A head → open A rA
			fail A disconnected → close A; note A0/1 retry 1s
			found B → look B
			looked B head →
			heads dropped → look A; look B
			looked A →
			looked B head →
			at 1s → open B rB
			fail B unknown_ref → close B; stop B unknown_ref; note B0/1
			heads dropped → stop B no more; look B
			looked B →
			at 1h →`},
		"who was forgotten while it waited for a host is not stepped when the host is back": {Window{}, `
			recovered C C1 → open C rC
			fail C disconnected → close C; note C1/1 retry 1s
			found A → look A
			looked A head →
			heads dropped → look A
			looked A →
			sequenced A1 →
			at 1s → open C rC
			opened C → open A rA; send C1 acked 0
			opened A → send A1 acked 0`},
		"a drop found by a takeover needs no higher incarnation": {Window{}, `
			recovered A A1 drop A2 → open A rA settle
			opened A last 2 → settle A last 2: A2
			settled A → send A1 acked 0; send A2 acked 0`},
		"the link breaks while a drop is decided: nothing is sent before": {Window{}, `
			recovered A drop A1 → open A rA settle
			opened A last 0 → settle A last 0: A1
			broken A → close A; note A1/1 retry 1s
			at 1s →
			settled A A1 → open A rA
			opened A → send A1 acked 0 void`},
		"a batch that cannot be taken becomes voids": {Window{}, `
			recovered A A1 A2 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			err A too_large → close A; note A1/1 A2/1 retry 0s; raise
			raised → open A rA settle
			opened A last 0 → settle A last 0: A1
			settled A A1 → send A1 acked 0 void; send A2 acked 0
			err A too_large → close A; stop A too_large; note A1/2 A2/2`},
		"few places: who has nothing to do makes room": {Window{Streams: 1}, `
			recovered A A1 → open A rA
			recovered B B1 →
			opened A → send A1 acked 0
			ok A1 → finish A1; close A; open B rB
			stored A1 →
			opened B → send B1 acked 0
			sequenced A2 →
			ok B1 → finish B1; close B; open A rA`},
		"few places: who always has something to do makes room after a while": {Window{Streams: 1}, `
			recovered A A1 A2 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			found B → look B
			looked B head →
			at 999ms →
			sequenced A3 → send A3 acked 0
			at 1s →
			ok A1 → finish A1
			sequenced A4 →
			stored A1 →
			ok A2 → finish A2
			ok A3 → finish A3; ack A 1; close A; open B rB
			opened B → load B 256
			sequenced A5 →
			at 2s →
			loaded B B1 more → close B; open A rA
			opened A → send A4 acked 1; send A5 acked 1
			ok A4 → finish A4
			ok A5 → finish A5; close A; open B rB`},
		"a place that is freed by a failure goes to the next": {Window{Streams: 1}, `
			recovered A A1 → open A rA
			recovered B B1 →
			fail A overloaded → close A; note A1/1 retry 1s; open B rB
			opened B → send B1 acked 0
			at 1s →
			ok B1 → finish B1; close B; open A rA`},
		"fetching more before the queue runs dry": {Window{Batches: 1}, `
			found A → look A
			looked A head → open A rA
			opened A → load A 4
			loaded A A1 A2 A3 A4 more → send A1 acked 0
			ok A1 → finish A1; send A2 acked 0
			stored A1 →
			ok A2 → finish A2; send A3 acked 1; load A 2`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript(c.win)
			for i, line := range strings.Split(strings.TrimSpace(c.text), "\n") {
				what, want, ok := strings.Cut(line, "→")
				if !ok {
					t.Fatalf("line %d has no arrow", i+1)
				}
				got := s.line(strings.TrimSpace(what))
				if got != strings.TrimSpace(want) {
					t.Fatalf("line %d: %s\n got %s\nwant %s", i+1, strings.TrimSpace(what), got, strings.TrimSpace(want))
				}
				s.sound(t)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for code, want := range map[fault.Code]verdict{
		fault.Fenced: leaseLost, fault.Gap: rewind, fault.ServerBehind: giveUp, fault.OutboxDiverged: giveUp,
		fault.Overloaded: tryStream, fault.QuotaExceeded: tryStream, fault.NotYetKnown: tryStream, fault.Internal: tryStream, fault.DiskFull: tryStream,
		fault.Unavailable: tryLink, fault.Disconnected: tryLink, fault.Draining: tryLink, fault.Canceled: tryLink,
		fault.UnknownRef: giveUp, fault.WrongOutbox: giveUp, fault.Plaintext: giveUp, fault.Incompatible: giveUp, fault.Revoked: giveUp,
		fault.TooLarge: unsendable, fault.Malformed: unsendable,
	} {
		if got, f := judge(fmt.Errorf("call: %w", code.With("x"))); got != want || f.Code != code {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	if got, f := judge(fmt.Errorf("read tcp: reset")); got != tryLink || f.Code != fault.Disconnected || f.Message == "" {
		t.Errorf("unknown: %d %v", got, f)
	}
}
