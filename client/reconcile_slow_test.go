//go:build crash && unix

package client_test

import "testing"

// As TestWritersBringBackWhatARestoreLost, with as many writers as a busy server has.
func TestManyWritersBringBackWhatARestoreLost(t *testing.T) {
	t.Parallel()
	onBothRigs(t, func(t *testing.T, r *rig) { testDrill(t, r, 64, 8) })
}
