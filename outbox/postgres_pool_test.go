package outbox

// What connections of a pool of ours are told.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// A statement that was planned while the tables were empty goes by keys when they are not.
func TestPlansGoByKeys(t *testing.T) {
	t.Parallel()
	b := place{"postgres", pgtest.URL(t), "box"}.open(t, quick())
	pool := b.db.(*postgres.DB).Pool
	for query, index := range map[string]string{
		`UPDATE mooring_outbox_batch SET state = 2 WHERE box = 1 AND num = 1 AND state < 2`:  "mooring_outbox_batch_pkey",
		`SELECT num FROM mooring_outbox_batch WHERE box = 1 AND batch = 'b'`:                 "mooring_outbox_batch_id",
		`DELETE FROM mooring_outbox_op WHERE box = 1 AND batch = 'b'`:                        "mooring_outbox_op_batch",
		strings.NewReplacer("$1", "1", "$2", "'x'").Replace(sqlstore.SQLInFlightVia):         "mooring_outbox_batch_pkey",
		strings.NewReplacer("$1", "1", "$2", "1").Replace(sqlstore.SQLAnyStopped):            "mooring_outbox_stream_stopped",
		strings.NewReplacer("$1", "1", "$2", "'5:9:6'").Replace(sqlstore.PostgresRefs.Since): "mooring_outbox_ref_change",
		strings.NewReplacer("$1", "1").Replace(sqlstore.PostgresRefs.Restamp):                "mooring_outbox_ref_change",
	} {
		var plan string
		if err := pool.QueryRow(limited(t), `EXPLAIN (FORMAT JSON) `+query).Scan(&plan); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, `"Index Name": "`+index+`"`) {
			t.Errorf("%s goes by way of %s", query, plan)
		}
	}
	var seqscan, unacknowledged string
	err := pool.AcquireFunc(limited(t), func(c *pgxpool.Conn) error {
		if got := fmt.Sprintf("%T", c.Conn().PgConn().Conn()); got != "*socket.directConn" {
			t.Errorf("sockets are read as a %s", got)
		}
		return c.QueryRow(limited(t), "SELECT current_setting('enable_seqscan'), current_setting('tcp_user_timeout')").Scan(&seqscan, &unacknowledged)
	})
	if err != nil || seqscan != "off" || unacknowledged != "30000" {
		t.Errorf("tables may be read through: %s, or what is sent is never acknowledged: %s, %v", seqscan, unacknowledged, err)
	}
}
