package client

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse())) }
