package client

// Ops that need a feature: they are not sent to a server that does not name it.

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
)

// TestOpsAreNotSentBeforeTheirFeatureIsNamed: an older server would reject them for good. The server is asked again each
// time, and what needs nothing is sent meanwhile.
func TestOpsAreNotSentBeforeTheirFeatureIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := &recording{features: []string{"resume"}}
		c := linkClient(t, Config{dial: hosts{"127.0.0.1:1": record}.dial})
		ref := testAddress().New(testSession)
		s, err := link{c}.OpenStream(t.Context(), outbox.StreamRequest{Session: testSession, Ref: ref, Outbox: "obx_1", Secret: capability.NewSecret(), Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		asked := func(what string) (times int) {
			record.mu.Lock()
			defer record.mu.Unlock()
			return len(slices.DeleteFunc(slices.Clone(record.lines), func(line string) bool { return line != what }))
		}
		apply := func(key string) error {
			t.Helper()
			var got *outbox.Reply
			b := &ledger.Batch{Session: testSession, BatchID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Incarnation: 1, Ops: []ledger.Intent{{OpID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Seq: 1, Method: "put",
				Args: []ledger.Arg{{Name: "key", JSON: []byte(`"` + key + `"`)}, {Name: "payload", JSON: []byte(`{}`)}}}}}
			s.Apply(b, func(r outbox.Reply) { got = &r })
			synctest.Wait()
			if got == nil {
				t.Fatal("no answer")
			}
			return got.Err
		}
		for range 2 {
			if err := apply("todo/1"); fault.CodeOf(err) != fault.Unsupported {
				t.Errorf("not named: %v", err)
			}
		}
		if got := [2]int{asked("Stream.apply"), asked("Gateway.hello")}; got != [2]int{0, 3} {
			t.Errorf("%d batches were sent, hello was asked %d times", got[0], got[1])
		}
		if err := apply("message/m"); fault.CodeOf(err) == fault.Unsupported || asked("Stream.apply") != 1 {
			t.Errorf("what needs nothing: %v", err)
		}
		record.mu.Lock()
		record.features = []string{"keys"}
		record.mu.Unlock()
		if err := apply("todo/1"); fault.CodeOf(err) == fault.Unsupported || asked("Stream.apply") != 2 {
			t.Errorf("named: %v", err)
		}
		s.Close()
		<-s.Done()
		_ = c.Close()
	})
}
