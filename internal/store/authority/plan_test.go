package authority

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/plantest"
	"github.com/mooring-rpc/mooring/internal/store/reads"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse())) }

// statements are all that there are.
var statements = plantest.Statements{
	All: map[string]*dialect.Statement{
		"readWebhooks": readWebhooks, "insertWebhook": insertWebhook, "dropWebhook": dropWebhook, "findHooked": findHooked,
		"claimAnyWebhooks": claimAnyWebhooks, "claimWebhooksOf": claimWebhooksOf, "saveWebhook": saveWebhook,
		"releaseWebhooks": releaseWebhooks, "releaseAllWebhooks": releaseAllWebhooks, "findManaged": findManaged,
		"readSessionRoots": readSessionRoots, "claimDone": claimDone, "nthReadOnlyStream": nthReadOnlyStream, "lockGrants": lockGrants,
		"readRoots": readRoots, "countRedemption": countRedemption, "insertRedemption": insertRedemption,
		"readRedemption": readRedemption, "addUses": addUses, "findExpired": findExpired, "lockExpired": lockExpired,
		"markExpiryAudited": markExpiryAudited, "insertShare": insertShare, "readShare": readShare,
		"readRecentRequests": readRecentRequests, "readRefusals": readRefusals, "saveRefusals": saveRefusals,
		"dropRefusals": dropRefusals, "findByExternal": findByExternal, "readShares": readShares, "listShares": listShares,
		"readOwners": readOwners, "readChildren": readChildren, "insertPageToken": insertPageToken, "evictPageTokens": evictPageTokens,
		"readPageToken": readPageToken, "dropPageToken": dropPageToken, "findExpiredTokens": findExpiredTokens, "claimMeta": claimMeta,
		"insertSpace": insertSpace, "readSpaceRef": readSpaceRef, "readAccount": readAccount, "sumAccount": sumAccount,
		"exemptAccount": exemptAccount, "readExempt": readExempt, "claimKey": claimKey, "pruneWriters": pruneWriters,
	},
	Indexed: map[string]string{
		"claimAnyWebhooks": "webhooks_due",
	},
}

func TestPlans(t *testing.T) { plantest.Check(t, statements) }

// TestListOfSharesReadsBeginnings: of a session's info, which may be as large as anything, the list of shares reads the
// beginning, where its title mostly is.
func TestListOfSharesReadsBeginnings(t *testing.T) {
	t.Parallel()
	plantest.ReadBeginnings(t, map[string]plantest.List{"shares": {Statement: listShares, Args: []any{"", 10}}}, reads.MaxInfoBytes)
}
