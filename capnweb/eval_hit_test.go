package capnweb_test

import (
	"context"
	"math/big"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
)

// What is beyond a limit of values is counted, and ends the connection alone.
func TestLimitsOfValuesAreCounted(t *testing.T) {
	t.Parallel()
	var hits capnweb.LimitHits
	p := connect(t, capnweb.Config{}, capnweb.Config{Main: capnweb.Func(func(any) {}), LimitHits: &hits, Limits: capnweb.Limits{BigIntDigits: 10}})
	main := p.client.Main()
	defer main.Release()
	call := main.Call(context.Background(), "", new(big.Int).Lsh(big.NewInt(1), 200))
	defer call.Release()
	awaitErr(t, call)
	if n := hits.Of(capnweb.LimitBigIntDigits); n != 1 {
		t.Errorf("counted %d times", n)
	}
}
