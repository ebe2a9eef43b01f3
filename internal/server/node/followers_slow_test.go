//go:build unix && crash

package node

import "testing"

func TestThousandsOfFollowersOfThreeServers(t *testing.T) {
	t.Parallel()
	followersOfThreeServers(t, 3000, 250)
}
