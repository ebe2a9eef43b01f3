package pgtest

import (
	"net/url"
	"testing"

	"github.com/mooring-rpc/mooring/internal/faultproxy"
)

// ViaProxy gives a proxy on the way to a database, until tb ends, and the database's URL by way of it.
func ViaProxy(tb testing.TB, databaseURL string) (*faultproxy.Proxy, string) {
	tb.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		tb.Fatal("pgtest: the database's URL cannot be read")
	}
	proxy, err := faultproxy.Listen(u.Host)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			tb.Error(err)
		}
	})
	u.Host = proxy.Addr()
	return proxy, u.String()
}
