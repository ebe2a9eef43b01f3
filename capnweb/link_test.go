package capnweb

import (
	"runtime"
	"testing"
)

// releaseSignal is an object that says when nobody holds it any more.
type releaseSignal struct{ gone chan struct{} }

func (*releaseSignal) Serve(c *Call) { c.Return(nil) }
func (o *releaseSignal) Release()    { close(o.gone) }

// A value that is made while what it refers to is being resolved does not come to hold itself.
func TestNoCircleWhileItIsResolved(t *testing.T) {
	for _, between := range []bool{false, true} {
		inner, outer := newFuture(), newFuture()
		resolved := make(chan struct{})
		resolve := func() {
			inner.ref()
			outer.resolve(nil, inner, nil)
			close(resolved)
		}
		if between { // it has looked who refers to it, and waits
			outer.mu.Lock()
			go resolve()
			for linkMu.TryLock() {
				linkMu.Unlock()
				runtime.Gosched()
			}
		}
		o := &releaseSignal{make(chan struct{})}
		v, err := copyInResult([]any{(&Promise{node: outer}).Stub(), o}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if between {
			outer.mu.Unlock()
		} else {
			resolve()
		}
		<-resolved
		inner.resolve(v, nil, nil)
		if inner.err != errCycle {
			t.Errorf("between %v: %v", between, inner.err)
		}
		outer.unref()
		inner.unref()
		<-o.gone
	}
}
