package page

import (
	"os"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
)

func TestMain(m *testing.M) {
	markup.CodeTime = time.Minute
	os.Exit(m.Run())
}
