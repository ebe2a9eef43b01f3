//go:build crash

package postgres

import (
	"testing"

	"github.com/mooring-rpc/mooring/internal/store/storetest"
)

// TestConformanceByCopy: whatever can go in by COPY does.
func TestConformanceByCopy(t *testing.T) { storetest.RunTogether(t, copyingFrom(1)) }
