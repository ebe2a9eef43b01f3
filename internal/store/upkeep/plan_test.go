package upkeep

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/plantest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse())) }

// statements are all that there are.
var statements = plantest.Statements{
	All: map[string]*dialect.Statement{
		"findLeft": findLeft, "findForks": findForks, "readFirstOpen": readFirstOpen, "pageTrimmable": pageTrimmable,
		"pageDeleted": pageDeleted, "readEventMeta": readEventMeta, "materializeValues": materializeValues, "dropEvents": dropEvents,
		"setBase": setBase, "forget": forget, "setForgotten": setForgotten, "forgetEvents": forgotten[0], "forgetWords": forgotten[1],
		"forgetStreams": forgotten[2], "forgetRecords": forgotten[3], "forgetRedemptions": forgotten[4], "forgetGrants": forgotten[5],
		"forgetManaged": forgotten[6], "forgetUses": forgotten[7], "measureLog": measureLog, "measureState": measureState,
		"setMeasured": setMeasured, "clearGrants": clearGrants, "measureGrants": measureGrants, "exemptGrants": exemptGrants,
		"listUnmeasured": listUnmeasured, "limitLocks": limitLocks, "touchedSessions": writtenTables[0],
		"touchedEvents": writtenTables[1], "touchedStreams": writtenTables[2], "saveMeta": saveMeta, "countSessions": countSessions,
		"recordReplica": recordReplica, "readReplicas": readReplicas, "dropReplica": dropReplica, "dropReplicas": dropReplicas,
		"finishUpgrade": finishUpgrade, "keepChanges": keepChanges, "pageSessions": pageSessions, "pageAuditHeads": pageAuditHeads,
	},
	Indexed: map[string]string{
		"findLeft": "sessions_reverts_left", "findForks": "sessions_forking", "readFirstOpen": "turns_open",
		"pageTrimmable": "turns_open", "pageDeleted": "sessions_forgettable",
	},
}

func TestPlans(t *testing.T) { plantest.Check(t, statements) }
