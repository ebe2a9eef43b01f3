//go:build unix && crash

package node

import "testing"

func TestTenThousandRefsAreCutAtOnce(t *testing.T) {
	t.Parallel()
	cutAtOnce(t, 10_000)
}
