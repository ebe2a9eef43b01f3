package rpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// A connection that is ended for what the peer did breaks with the reason on both sides; an error of
// ours that is not for a peer's eyes is not shown to it.
func TestAbortTellsWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why    error
		reason string
	}{{codedError{}, "code 7"}, {errors.New("a secret"), "internal error"}} {
		eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
			boot := v.a.Bootstrap(testContext(t))
			defer boot.Release()
			p := boot.Call(testContext(t), mHold, testSize, nil)
			<-v.bObj.holding
			v.b.Abort(c.why)
			if _, _, err := p.Wait(testContext(t)); !IsDisconnected(err) || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), "secret") {
				t.Errorf("the peer's call ends with %v", err)
			}
			p.Release()
			<-v.b.Done()
			if err := v.b.Err(); err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("it ended with %v", err)
			}
			v.b.Abort(errors.New("too late"))
		})
	}
}

// Who writes to a peer that has closed its end is told by reading alone: first what the peer said before.
func TestWritingToAClosedPipe(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b := Pipe()
	if err := b.WriteBatch(ctx, []byte("why")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(peerconn.CloseNormal, ""); err != nil {
		t.Fatal(err)
	}
	if err := a.WriteBatch(ctx, []byte("something")); err != nil {
		t.Error(err)
	}
	if said, err := a.ReadBatch(ctx); string(said) != "why" || err != nil {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := a.ReadBatch(ctx); err != io.EOF {
		t.Error(err)
	}
}
