package ledger_test

// One batch through the ledger, twice, as a commit does it.

import (
	"fmt"

	"github.com/mooring-rpc/mooring/ledger"
)

func ExampleDecide() {
	stream := &ledger.Stream{Session: sessionID, Outbox: outboxID, Incarnation: 1}
	history := ledger.NewHistory(nil)
	session := newFake() // knows the method add

	b := batch(100, 1,
		op(1, "add", val("n", "5")),
		op(2, "add", ref("n", 1, "sum")), // what op 1 came to
		op(3, "add", val("n", `"six"`)),
		after(op(4, "add", val("n", "7")), 3)) // only if op 3 applies
	for range 2 {
		outcomes, refusal := ledger.Admit(stream, b, history.Record)
		repeated := outcomes != nil
		if refusal == nil && !repeated {
			var record *ledger.Record
			if record, refusal = ledger.Decide(stream, b, history.Outcome, ledger.DefaultLimits(), session); refusal == nil {
				history.Add(record)
				outcomes = record.Outcomes
			}
		}
		if refusal != nil {
			fmt.Println(refusal)
			return
		}
		fmt.Printf("cursor %d, repeated: %v\n", session.Cursor(), repeated)
		for _, o := range outcomes {
			if o.Status == ledger.Applied {
				fmt.Printf("  applied: %s\n", o.Result)
			} else {
				fmt.Printf("  %s: %s\n", o.Status, o.Reason)
			}
		}
	}
	// Output:
	// cursor 2, repeated: false
	//   applied: {"cursor":1,"sum":5}
	//   applied: {"cursor":2,"sum":10}
	//   rejected: bad_argument
	//   skipped: bad_argument
	// cursor 2, repeated: true
	//   applied: {"cursor":1,"sum":5}
	//   applied: {"cursor":2,"sum":10}
	//   rejected: bad_argument
	//   skipped: bad_argument
}
