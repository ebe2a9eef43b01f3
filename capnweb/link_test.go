package capnweb

import (
	"runtime"
	"testing"
)

// told is an object that says when nobody holds it any more.
type told struct{ gone chan struct{} }

func (*told) Serve(c *Call) { c.Return(nil) }
func (o *told) Release()    { close(o.gone) }

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
			for links.TryLock() {
				links.Unlock()
				runtime.Gosched()
			}
		}
		o := &told{make(chan struct{})}
		v, err := takeResult([]any{(&Promise{node: outer}).Stub(), o}, nil)
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
		if inner.err != errCircle {
			t.Errorf("between %v: %v", between, inner.err)
		}
		outer.unref()
		inner.unref()
		<-o.gone
	}
}
