package outbox

// The caller's own transaction and a process that is killed: what the caller wrote
// and what is sent are there together, or not at all.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/internal/seed"
)

// txChildVar makes the test binary a process that writes its state and commits
// batches in one transaction: the URL, the outbox's name, the session, the state's
// table, the transaction at which it kills itself, and whether before or after that
// has been committed.
const txChildVar = "MOORING_OUTBOX_TEST_TX_CHILD"

// txChild is that process. It returns only if something is wrong.
func txChild(text string) int {
	args := strings.Split(text, " ")
	url, box, session, table, when := args[0], args[1], args[2], args[3], args[5]
	last, err := strconv.Atoi(args[4])
	if err == nil {
		err = commitAndDie(context.Background(), url, box, session, table, last, when)
	}
	fmt.Fprintln(os.Stderr, "the child lives:", err)
	return 1
}

func commitAndDie(ctx context.Context, url, name, session, table string, last int, when string) error {
	b, err := place{"postgres", url, name}.tryOpen(quick())
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	die := func(here string, n int) {
		if here == when && n == last {
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Kill()
			}
			select {} // until the signal is delivered
		}
	}
	for n := 1; n <= last; n++ {
		batch := Batch{ID: opid.NewBatch(), Session: session, Ops: []Op{put(strconv.Itoa(n)), put("0")}}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO "+table+" (batch) VALUES ($1)", batch.ID); err != nil {
				return err
			}
			_, err := b.CommitTx(ctx, tx, batch)
			die("before", n)
			return err
		})
		if err != nil {
			return err
		}
		die("after", n)
	}
	return nil
}

func TestKilledRightAfterTheCallersCommit(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seed.Of(t), 1))
	p := newPlace(t, "postgres")
	p.name, p.at = strings.ReplaceAll(p.name, " ", "_"), shared.get(t)
	b, ctx := p.open(t, quick()), limited(t)
	session, table := withSession(t, b), "state_of_"+p.name
	conn, err := pgx.Connect(ctx, p.at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, "CREATE TABLE "+table+" (n serial, batch text)"); err != nil {
		t.Fatal(err)
	}
	srv := newFakeServer()
	defer run(t, b, srv)()
	committed := 0
	for _, when := range []string{"after", "before", "after", "before", "after"} {
		last := 1 + r.IntN(20)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), txChildVar+"="+strings.Join([]string{p.at, p.name, session, table, strconv.Itoa(last), when}, " "))
		out, _ := cmd.CombinedOutput()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("the child was not killed: %s", out)
		}
		if committed += last; when == "before" {
			committed--
		}
	}
	rows, err := conn.Query(ctx, "SELECT batch FROM "+table+" ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	state, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(state) != committed {
		t.Fatalf("%d rows of state, %v, want %d", len(state), err, committed)
	}
	if err := b.Drain(ctx, nil); err != nil {
		t.Fatal(err)
	}
	var sent []string
	for i, e := range srv.log(session) {
		if i%2 == 0 {
			sent = append(sent, e.batch)
		} else if e.batch != sent[len(sent)-1] {
			t.Fatalf("event %d is of batch %s, in the middle of %s", i, e.batch, sent[len(sent)-1])
		}
	}
	if !slices.Equal(sent, state) {
		t.Errorf("%d batches were sent, in the caller's state are %d:\n%v\n%v", len(sent), len(state), sent, state)
	}
}
