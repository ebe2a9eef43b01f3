//go:build unix

package web

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/slowreader"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// A reader who takes nothing, and whose ref is revoked meanwhile, is sent nothing from above the cut when it reads
// again, over any of the ways to follow over HTTP: what was on its way is from below, in order, and then there is an end.
func TestSilentReadersAreCutOff(t *testing.T) {
	t.Parallel()
	const each, round, bytes = 3, 60, 16 << 10
	r := start(t, teststore.SQLite(t), func(_ *node.Config, pages *Config) { pages.WriteTimeout = 2 * patience })
	m := r.create()
	public, reader := m.publish(), m.share(capability.MintRequest{})
	target := slowreader.Target{Host: r.host, Share: public.ID, Session: m.id, Bearer: reader.ID + "#" + reader.Secret.RevealText()}
	var readers []*slowreader.Reader
	for i := range each * len(slowreader.Endpoints) {
		one, err := target.Open(t.Context(), slowreader.Endpoints[i%len(slowreader.Endpoints)])
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		readers = append(readers, one)
	}
	text := strings.Repeat("x", bytes)
	write := func(from int) {
		for i := range round {
			m.do(put(fmt.Sprintf("part/a/%d", i), fmt.Sprintf(`{"type":"text","n":%d,"text":%q}`, from+i, text)))
		}
	}
	write(1)
	m.revoke(public.Share)
	m.revoke(reader.ID)
	write(round + 1)
	var reading sync.WaitGroup
	for _, one := range readers {
		reading.Go(func() {
			ctx := within(t)
			n, err := one.ReadAll(ctx, 1)
			if n == 0 || n > round || ctx.Err() != nil || errors.Is(err, slowreader.ErrMissed) {
				t.Errorf("%s: %d of the %d below the cut came, and then %v", one.Endpoint.Name, n, round, err)
			}
		})
	}
	reading.Wait()
}
