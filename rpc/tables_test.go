package rpc

import (
	"reflect"
	"testing"
)

// The maps of a connection give memory back after a burst: of the peer's calls, of what it gave us, of what we gave it, and of promises that its
// calls wait for.
func TestConnectionsGiveBack(t *testing.T) {
	t.Parallel()
	obj := &holdingObject{}
	h := newHostile(t, obj, Limits{})
	h.say("bootstrap q=0")
	const burst = 1000
	for i := 1; i <= burst; i++ {
		h.say("call q=%d to=answer:0 hold cap=hosted:%d", 2*i-1, i)
		h.say("call q=%d to=answer:0 hold cap=answer:1.%d", 2*i, i)
	}
	maps := func() map[string]reflect.Value {
		return map[string]reflect.Value{"answers": reflect.ValueOf(h.c.answers), "imports": reflect.ValueOf(h.c.imports),
			"exported": reflect.ValueOf(h.c.exportIDs), "lanes": reflect.ValueOf(h.c.lanes)}
	}
	full := maps()
	for _, call := range obj.calls[1:] {
		r := NewLocal(newTestObject("x"))
		call.Return(testSize, fill(0, "", r))
		r.Release()
	}
	full["exported"] = maps()["exported"]
	obj.calls[0].Fail(errCanceled)
	h.deliver()
	for q := 1; q <= 2*burst; q++ {
		h.say("finish q=%d", q)
	}
	for name, m := range maps() {
		if m.Len() > 1 || full[name].Pointer() == m.Pointer() {
			t.Errorf("%s: %d are left, in a map that was made for %d", name, m.Len(), burst)
		}
	}
}
